# The three programs on Debian 12, for a processor; with NVIDIA's libraries:
#   docker build --build-arg CUDA=--cuda --tag genesis:latest-cuda .
# genesisd listens on loopback only until it is given TLS and tokens (docs/security.md), so it shares
# the host's network; docker-compose.yml does the same with Prometheus and Grafana beside it:
#   docker run --network host -v genesis-data:/data genesis
FROM debian:12 AS build
ARG CUDA=
# LibTorch lands in the same place in both stages: the worker finds it by its path.
ENV XDG_CACHE_HOME=/opt
# First only what setup.sh reads, so that a change of the sources installs nothing again.
COPY deploy/setup.sh deploy/lib.sh deploy/check_wheels.py /src/deploy/
RUN /src/deploy/setup.sh ${CUDA}
COPY . /src
WORKDIR /src
RUN cmake --preset release -DBUILD_TESTING=OFF -DGENESIS_UNITY=ON \
 && cmake --build --preset release --target genesisd genesis-worker genesisctl \
 && cmake --install build/release --prefix /usr/local --strip

FROM debian:12-slim
LABEL org.opencontainers.image.title="Genesis trainer" \
      org.opencontainers.image.description="Training daemon, worker and command line" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.base.name="debian:12-slim"
# The shared libraries of the packages that setup.sh builds with. Debian 12 keeps their interfaces, and
# a pinned version would keep a security fix out.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates curl libcjose0 libcurl4 libdeflate0 libgomp1 libgrpc++1.51 \
      libprometheus-cpp-core1.0 libprotobuf32 libspdlog1.10 libsqlite3-0 libyaml-cpp0.7 tini zlib1g \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --system --gid 10001 genesis \
 && useradd --system --uid 10001 --gid genesis --create-home --home-dir /data genesis
COPY --from=build /opt/genesis /opt/genesis
COPY --from=build /usr/local/bin /usr/local/bin
COPY --from=build /usr/local/share /usr/local/share
COPY deploy/container/entrypoint.sh deploy/container/health.sh deploy/container/worker.sh /usr/local/lib/genesis/
ENV GENESIS_DATA_DIR=/data
# By number, so that Kubernetes sees that it is not root.
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 50051 8080
# SIGTERM drains: running jobs checkpoint. Give it more than drain.timeout_seconds: docker stop -t 40.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
  CMD ["/usr/local/lib/genesis/health.sh"]
ENTRYPOINT ["tini", "--", "/usr/local/lib/genesis/entrypoint.sh"]
CMD ["genesisd"]
