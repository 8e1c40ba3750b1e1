// Tests of Indexed Jobs, which are built and parsed without a server.
#include "server/launchers/kubernetes_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/launchers/kubernetes_launcher.h"
#include "tests/temp_dir.h"

namespace genesis {
namespace {

using testing::HasSubstr;

TEST(KubernetesJobTest, NamesAreThoseOfObjectsWithRoomForTheirPods) {
  EXPECT_EQ(JobObjectName("genesis-0a1b2c3d-1-job"), "genesis-0a1b2c3d-1-job");
  const std::string name = "genesis-0a1b2c3d-1-" + std::string(63, 'x');
  EXPECT_EQ(JobObjectName(name).size(), 52U);
  EXPECT_NE(JobObjectName(name), JobObjectName(name + "y"));
  for (const std::string& odd : {name, std::string("genesis-0a1b2c3d-1-job-"),
                                 "genesis-0a1b2c3d-1-a" + std::string(60, '-')}) {
    EXPECT_THAT(JobObjectName(odd), testing::MatchesRegex("[a-z0-9][a-z0-9-]*[a-z0-9]"));
  }
  EXPECT_EQ(DaemonLabelOf("genesis-0a1b2c3d-"), "genesis-0a1b2c3d");
}

class PodTemplateTest : public testing::Test {
 protected:
  absl::StatusOr<Json> Read(const std::string& text) {
    temp_.Write("pod.yaml", text);
    return ReadPodTemplate(temp_.path() + "/pod.yaml");
  }
  std::string Fault(const std::string& text) { return std::string(Read(text).status().message()); }

  TempDir temp_;
};

TEST_F(PodTemplateTest, ScalarsMeanWhatTheyMeanToKubectl) {
  const absl::StatusOr<Json> pod = Read(
      "metadata: {labels: {on: 'true', number: \"1\"}}\n"
      "spec:\n  containers: [{name: w, resources: {requests: {cpu: 2, memory: 4Gi}}}]\n"
      "  terminationGracePeriodSeconds: 60\n  enableServiceLinks: false\n  x: [0440, 0.5, ~, "
      "08]\n");
  ASSERT_TRUE(pod.ok()) << pod.status();
  EXPECT_EQ((*pod)["metadata"]["labels"], Json({{"on", "true"}, {"number", "1"}}));
  EXPECT_EQ((*pod)["spec"]["containers"][0]["resources"]["requests"],
            Json({{"cpu", 2}, {"memory", "4Gi"}}));
  EXPECT_EQ((*pod)["spec"]["terminationGracePeriodSeconds"], 60);
  EXPECT_EQ((*pod)["spec"]["enableServiceLinks"], false);
  EXPECT_EQ((*pod)["spec"]["x"][0], 288);
  EXPECT_EQ((*pod)["spec"]["x"][1], 0.5);
  EXPECT_TRUE((*pod)["spec"]["x"][2].is_null());
}

TEST_F(PodTemplateTest, FaultsNameFileAndPlace) {
  EXPECT_THAT(ReadPodTemplate("/nowhere/pod.yaml").status().message(),
              HasSubstr("kubernetes.pod_template: /nowhere/pod.yaml"));
  EXPECT_THAT(Fault("spec: ["), HasSubstr("kubernetes.pod_template: "));
  EXPECT_THAT(Fault("- a\n"), HasSubstr("kubernetes.pod_template: "));
  for (const char* none : {"", "spec: 3", "spec: {containers: 3}", "spec: {containers: []}",
                           "spec: {containers: [3]}"}) {
    EXPECT_THAT(Fault(none), HasSubstr("spec.containers: required; give a container")) << none;
  }
  EXPECT_THAT(Fault("kind: Pod\nspec: {containers: [{args: [a]}], restartPolicy: Always}"),
              testing::AllOf(HasSubstr("kind: unknown key; accepted here: metadata, spec"),
                             HasSubstr("spec.containers[0].args: set by the daemon; remove it"),
                             HasSubstr("spec.restartPolicy: Never, or nothing")));
}

TEST_F(PodTemplateTest, TheObjectIsTheTemplateAndWhatTheDaemonKnows) {
  const absl::StatusOr<Json> pod =
      Read("metadata: {labels: {a: b}}\nspec: {containers: [{name: w}, {name: other}]}\n");
  ASSERT_TRUE(pod.ok());
  KubernetesSettings settings;
  const LaunchRequest request = {.name = "genesis-0a1b2c3d-1-x", .job_id = "x", .workers = 3};
  Json job = MakeJobObject(settings, *pod, request, {"genesis-worker", "--daemon"});
  EXPECT_EQ(job["spec"]["completions"], 3);
  EXPECT_EQ(job["spec"]["parallelism"], 3);
  EXPECT_EQ(job["spec"]["template"]["metadata"]["labels"],
            Json({{"a", "b"}, {"genesis-daemon", "genesis-0a1b2c3d"}}));
  const Json& containers = job["spec"]["template"]["spec"]["containers"];
  EXPECT_EQ(containers[0]["args"], Json({"genesis-worker", "--daemon"}));
  EXPECT_FALSE(containers[0].contains("resources")) << "nothing that is not asked for";
  EXPECT_EQ(containers[1], Json({{"name", "other"}}));
  settings.gpus_per_pod = 2;
  settings.priority_class = "high";
  job = MakeJobObject(settings, *pod, request, {"genesis-worker"});
  EXPECT_EQ(job["spec"]["template"]["spec"]["priorityClassName"], "high");
  EXPECT_EQ(
      job["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"],
      "2");
}

Json Condition(const std::string& type, const std::string& reason, const std::string& message) {
  return {{"type", type}, {"status", "True"}, {"reason", reason}, {"message", message}};
}

LaunchStatus Status(const Json& conditions, const std::vector<Json>& pods = {}) {
  return StatusOfJob(
      {{"metadata",
        {{"name", "object"}, {"annotations", {{kReservationAnnotation, "genesis-0a1b2c3d-1-x"}}}}},
       {"status", {{"conditions", conditions}}}},
      pods);
}

Json Pod(const Json& status) { return {{"metadata", {{"name", "p-0"}}}, {"status", status}}; }

TEST(StatusOfJobTest, EndsAreToldFromTheConditionsOfJobAndPods) {
  EXPECT_EQ(Status(Json::array({Condition("Complete", "", "")})).end, LaunchEnd::kDone);
  const Json failed =
      Json::array({Condition("Failed", "BackoffLimitExceeded", "Job has reached its limit")});
  LaunchStatus status = Status(failed);
  EXPECT_EQ(status.name, "genesis-0a1b2c3d-1-x");
  EXPECT_EQ(status.cluster_id, "object");
  EXPECT_EQ(status.end, LaunchEnd::kFailed);
  EXPECT_EQ(status.reason, "BackoffLimitExceeded: Job has reached its limit");
  status = Status(
      failed,
      {Pod({{"phase", "Running"}}),
       Pod({{"phase", "Failed"},
            {"containerStatuses",
             Json::array({{{"name", "w"},
                           {"state",
                            {{"terminated", {{"reason", "OOMKilled"}, {"exitCode", 137}}}}}}})}})});
  EXPECT_EQ(status.end, LaunchEnd::kFailed);
  EXPECT_EQ(status.reason, "BackoffLimitExceeded: pod p-0: container w: OOMKilled: exit code 137");
  status = Status(
      failed,
      {Pod({{"phase", "Failed"},
            {"conditions", Json::array({Condition("DisruptionTarget", "PreemptionByScheduler",
                                                  "preempted")})}})});
  EXPECT_EQ(status.end, LaunchEnd::kPreempted);
  EXPECT_THAT(status.reason, HasSubstr("PreemptionByScheduler: preempted"));
  status = Status(failed, {Pod({{"phase", "Failed"},
                                {"reason", "Evicted"},
                                {"message", "The node was low on resource: memory."}})});
  EXPECT_EQ(status.end, LaunchEnd::kPreempted);
  EXPECT_THAT(status.reason, HasSubstr("Evicted: The node was low on resource: memory."));
  status = Status(Json::array({Condition("Failed", "DeadlineExceeded", "Job was active longer")}));
  EXPECT_EQ(status.end, LaunchEnd::kDone);
  EXPECT_EQ(status.reason, "DeadlineExceeded: Job was active longer");
}

TEST(StatusOfJobTest, WaitsAreToldWithTheFirstPodThatCannotGoOn) {
  EXPECT_EQ(Status(Json::array()).reason, "Pending");
  LaunchStatus status = Status(Json::array(), {Pod({{"phase", "Running"}})});
  EXPECT_TRUE(status.running);
  EXPECT_EQ(status.reason, "Running");
  const Json unscheduled =
      Pod({{"phase", "Pending"},
           {"conditions", Json::array({{{"type", "PodScheduled"},
                                        {"status", "False"},
                                        {"reason", "Unschedulable"},
                                        {"message", "0/3 nodes are available\x01"}}})}});
  status = Status(Json::array(), {Pod({{"phase", "Running"}}), unscheduled});
  EXPECT_FALSE(status.running);
  EXPECT_EQ(status.end, LaunchEnd::kNone);
  EXPECT_EQ(status.reason, "Pending: pod p-0: Unschedulable: 0/3 nodes are available\\x01");
  status = Status(
      Json::array(),
      {Pod({{"containerStatuses",
             Json::array({{{"state", {{"waiting", {{"reason", "ImagePullBackOff"}}}}}}})}})});
  EXPECT_EQ(status.reason, "Pending: pod p-0: ImagePullBackOff");
}

TEST(StatusOfJobTest, OneThatIsSuspendedHasNoWorkersUntilItGoesOn) {
  Json job = {{"spec", {{"suspend", true}}}};
  const LaunchStatus status = StatusOfJob(job, {Pod({{"phase", "Running"}})});
  EXPECT_TRUE(status.suspended);
  EXPECT_FALSE(status.running);
  EXPECT_EQ(status.end, LaunchEnd::kNone);
  EXPECT_EQ(status.reason, "Suspended (spec.suspend is true)");
  for (const Json& other : {Json(false), Json("true"), Json()}) {
    job["spec"]["suspend"] = other;
    EXPECT_FALSE(StatusOfJob(job, {}).suspended);
  }
  // If the Job has ended, its spec is ignored.
  job = {{"spec", {{"suspend", true}}},
         {"status", {{"conditions", Json::array({Condition("Complete", "", "")})}}}};
  EXPECT_EQ(StatusOfJob(job, {}).end, LaunchEnd::kDone);
}

TEST(StatusOfJobTest, ObjectsThatAreNoneAreRead) {
  for (const Json& odd :
       {Json(), Json(3), Json("x"), Json::array({1, 2}), Json({{"metadata", 3}, {"status", "x"}}),
        Json({{"spec", {{"suspend", {1}}}}}), Json({{"spec", 3}}),
        Json({{"status", {{"conditions", {1, "x", Json()}}}}})}) {
    const LaunchStatus status = StatusOfJob(odd, {odd, odd});
    EXPECT_EQ(status.end, LaunchEnd::kNone);
    EXPECT_EQ(status.name, "");
  }
}

TEST(FindKubernetesTest, IsTheSettingOrThePodsOwn) {
  TempDir temp;
  temp.Write("namespace", "team-7\n");
  const std::string file = temp.path() + "/namespace";
  const auto nothing = [](const std::string&) -> std::optional<std::string> { return {}; };
  KubernetesSettings settings;
  EXPECT_THAT(FindKubernetes(settings, nothing, file).status().message(),
              HasSubstr("kubernetes.api_server: required"));
  const auto pod = [](const std::string& name) -> std::optional<std::string> {
    if (name == "KUBERNETES_SERVICE_HOST") return "10.0.0.1";
    if (name == "KUBERNETES_SERVICE_PORT") return "6443";
    return {};
  };
  absl::StatusOr<KubernetesPlace> place = FindKubernetes(settings, pod, file);
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_EQ(place->api.host, "10.0.0.1");
  EXPECT_EQ(place->api.port, 6443);
  EXPECT_EQ(place->namespace_name, "team-7");
  EXPECT_THAT(FindKubernetes(settings, pod, "/nowhere").status().message(),
              HasSubstr("kubernetes.namespace: required"));
  settings.api_server = "https://[fd00::1]:7443";
  settings.namespace_name = "other";
  place = FindKubernetes(settings, nothing, "/nowhere");
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_EQ(place->api.host, "fd00::1");
  EXPECT_EQ(place->api.port, 7443);
  EXPECT_EQ(place->namespace_name, "other");
}

}  // namespace
}  // namespace genesis
