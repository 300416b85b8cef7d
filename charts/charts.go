// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package charts has the Helm charts that roll the extension out, and renders them as Gardener does.
package charts

import (
	"embed"
	"errors"
	"fmt"
	"io"

	"github.com/gardener/gardener/pkg/chartrenderer"
	kubernetesclient "github.com/gardener/gardener/pkg/client/kubernetes"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/version"
)

// Chart is the path of a Helm chart in this directory.
type Chart string

const (
	// Extension is the extension in a seed.
	Extension Chart = "gardener-extension-machine-preservation"
	// AdmissionApplication is what the admission component needs in the virtual garden cluster.
	AdmissionApplication Chart = "gardener-extension-machine-preservation-admission/charts/application"
	// AdmissionRuntime is the admission component in the garden runtime cluster.
	AdmissionRuntime Chart = "gardener-extension-machine-preservation-admission/charts/runtime"
)

// All are the charts of this directory.
var All = []Chart{Extension, AdmissionApplication, AdmissionRuntime}

//go:embed all:gardener-extension-machine-preservation all:gardener-extension-machine-preservation-admission
var files embed.FS

// Render returns the objects of a chart in the order in which they are to be created. The values are merged over those
// of the chart, and may have all types that JSON knows.
func (c Chart) Render(release, namespace string, values map[string]any) ([]*unstructured.Unstructured, error) {
	return c.objects(renderer().RenderEmbeddedFS(files, string(c), release, namespace, values))
}

// RenderArchive returns the objects of another version of a chart, which is in an archive as Helm packs them.
func (c Chart) RenderArchive(archive []byte, release, namespace string, values map[string]any) ([]*unstructured.Unstructured, error) {
	return c.objects(renderer().RenderArchive(archive, release, namespace, values))
}

// renderer returns what renders charts. No template asks for the version of Kubernetes.
func renderer() chartrenderer.Interface { return chartrenderer.NewWithServerVersion(&version.Info{}) }

func (c Chart) objects(rendered *chartrenderer.RenderedChart, err error) ([]*unstructured.Unstructured, error) {
	if err != nil {
		return nil, fmt.Errorf("failed to render chart %s: %w", c, err)
	}

	var objects []*unstructured.Unstructured
	for reader := kubernetesclient.NewManifestReader(rendered.Manifest()); ; {
		object, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("failed to read what chart %s renders: %w", c, err)
		}
		objects = append(objects, object)
	}
}
