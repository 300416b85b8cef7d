module github.com/gardener/gardener-extension-machine-preservation/hack/tools/docs

go 1.26.5

require (
	github.com/yuin/goldmark v1.8.7
	sigs.k8s.io/yaml v1.6.0
)

require go.yaml.in/yaml/v2 v2.4.2 // indirect
