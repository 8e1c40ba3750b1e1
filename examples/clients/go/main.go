// Trains a small world model on a genesisd, follows the job, and prints its held-out loss and its newest checkpoint:
//
//	client HOST:PORT JOB_ID [TOKEN]
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	pb "genesis/training/v1"
)

// A codec encodes the generated messages. Only the grpc-go of Debian 12, which uses golang/protobuf 1.3, needs it.
type codec struct{}

func (codec) Name() string                          { return "proto" }
func (codec) Marshal(v interface{}) ([]byte, error) { return proto.Marshal(v.(proto.Message)) }
func (codec) Unmarshal(data []byte, v interface{}) error {
	return proto.Unmarshal(data, v.(proto.Message))
}

var spec = &pb.JobSpec{
	Model: &pb.ModelSpec{Kind: &pb.ModelSpec_WorldModel{
		WorldModel: &pb.WorldModelSpec{HiddenSize: 32, LatentSize: 16}}},
	Dataset: &pb.DatasetSpec{Kind: &pb.DatasetSpec_Trajectories{
		Trajectories: &pb.TrajectoryFileSpec{Path: "pendulum.npz"}}},
	Training:   &pb.TrainingSpec{MaxSteps: 300, BatchSize: 64, Seed: 7},
	Checkpoint: &pb.CheckpointSpec{EverySteps: 100},
}

// follow prints the events of a job until the job has ended, and returns its final state.
func follow(ctx context.Context, client pb.TrainingServiceClient, id string) (pb.JobState, error) {
	watch, err := client.WatchJobs(ctx, &pb.WatchJobsRequest{Filter: &pb.EventFilter{JobId: id}})
	if err != nil {
		return 0, err
	}
	for {
		update, err := watch.Recv()
		if err != nil {
			return 0, err
		}
		for _, event := range update.Events {
			if written := event.GetCheckpointWritten(); written != nil {
				fmt.Printf("checkpoint at step %d, loss %.4g\n", written.Step, written.Loss)
			} else if change := event.GetStateChanged(); change != nil {
				fmt.Printf("%v: %s\n", change.To, change.Reason)
				switch change.To {
				case pb.JobState_JOB_STATE_SUCCEEDED, pb.JobState_JOB_STATE_FAILED, pb.JobState_JOB_STATE_CANCELLED:
					return change.To, nil
				}
			}
		}
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	encoding.RegisterCodec(codec{})
	connection, err := grpc.Dial(os.Args[1], grpc.WithInsecure())
	check(err)
	ctx := context.Background()
	if len(os.Args) > 3 {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+os.Args[3])
	}
	client, id := pb.NewTrainingServiceClient(connection), os.Args[2]
	_, err = client.Train(ctx, &pb.TrainRequest{JobId: id, Spec: spec})
	check(err)
	state, err := follow(ctx, client, id)
	check(err)
	if state != pb.JobState_JOB_STATE_SUCCEEDED {
		log.Fatalf("%s ended as %v", id, state)
	}
	ended, err := client.GetJob(ctx, &pb.GetJobRequest{JobId: id})
	check(err)
	fmt.Printf("held-out loss %.4g, checkpoint %s\n", ended.Job.Evaluation.Loss, ended.Job.LatestCheckpoint.Id)
}
