# The three programs on Debian 12. `docker build --build-arg CUDA=--cuda .` brings NVIDIA's libraries.
# genesisd listens on loopback only, so it shares the host's network:
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
RUN cmake --preset release -DBUILD_TESTING=OFF \
 && cmake --build --preset release --target genesisd genesis-worker genesisctl \
 && cmake --install build/release --prefix /usr/local --strip

FROM debian:12-slim
# The shared libraries of the packages that setup.sh builds with.
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates curl libgomp1 libgrpc++1.51 \
      libprometheus-cpp-core1.0 libprotobuf32 libspdlog1.10 libsqlite3-0 libyaml-cpp0.7 zlib1g \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --system --create-home --home-dir /data genesis
COPY --from=build /opt/genesis /opt/genesis
COPY --from=build /usr/local/bin /usr/local/bin
COPY --from=build /usr/local/share /usr/local/share
USER genesis
WORKDIR /data
VOLUME /data
HEALTHCHECK CMD curl -fsS http://127.0.0.1:8080/healthz
CMD ["genesisd", "--data-dir", "/data"]
