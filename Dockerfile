# SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
#
# SPDX-License-Identifier: Apache-2.0

FROM --platform=$BUILDPLATFORM golang:1.26.7 AS builder
ARG GOPROXY=https://proxy.golang.org,direct
ENV GOPROXY=$GOPROXY
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
# With .git: the binaries know their commit.
COPY . .
ARG TARGETOS
ARG TARGETARCH
RUN GOOS=$TARGETOS GOARCH=$TARGETARCH make build

FROM gcr.io/distroless/static-debian13:nonroot AS distroless-static

FROM distroless-static AS machine-preservation
COPY --from=builder /src/bin/gardener-extension-machine-preservation /gardener-extension-machine-preservation
WORKDIR /
ENTRYPOINT ["/gardener-extension-machine-preservation"]

FROM distroless-static AS machine-preservation-admission
COPY --from=builder /src/bin/gardener-extension-machine-preservation-admission /gardener-extension-machine-preservation-admission
WORKDIR /
ENTRYPOINT ["/gardener-extension-machine-preservation-admission"]

FROM distroless-static AS machine-preservation-controller
COPY --from=builder /src/bin/machine-preservation-controller /machine-preservation-controller
WORKDIR /
ENTRYPOINT ["/machine-preservation-controller"]
