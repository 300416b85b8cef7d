# SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
#
# SPDX-License-Identifier: Apache-2.0

FROM --platform=$BUILDPLATFORM golang:1.26.7@sha256:e30143be198ab04cf7ba25fba83ab3a692ca584c994aad0bf131fa0eb32dd8c1 AS builder
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

FROM gcr.io/distroless/static-debian13:nonroot@sha256:e2e927ec666bae08560abb3c55d0659eceabb657f56b6782ab500a9fc7f555e3 AS distroless-static

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
