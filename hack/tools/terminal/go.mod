module github.com/gardener/gardener-extension-machine-preservation/hack/tools/terminal

go 1.26.5

require (
	github.com/buildkite/terminal-to-html/v3 v3.17.1
	github.com/creack/pty v1.1.24
)
