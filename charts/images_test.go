// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/Masterminds/semver/v3"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/gardener/gardener-extension-machine-preservation/charts"
)

// There is not always somebody who can build images. This is what can be said without.
var _ = Describe("Dockerfile", func() {
	var instructions [][]string

	BeforeEach(func() {
		instructions = nil
		for line := range strings.Lines(read("../Dockerfile")) {
			if words := strings.Fields(line); len(words) > 0 && words[0] != "#" {
				instructions = append(instructions, words)
			}
		}
	})

	It("should have a target for each image that is deployed, with its binary and nothing else", func() {
		images := []string{"machine-preservation-controller"} // the image vector has a test of its own
		for _, chart := range []charts.Chart{charts.Extension, charts.AdmissionRuntime} {
			repository := readYAML(chart, "values.yaml")["image"].(map[string]any)["repository"].(string)
			images = append(images, path.Base(repository))
		}

		targets := map[string][][]string{}
		var target string
		for _, words := range instructions {
			if words[0] == "FROM" {
				target = words[len(words)-1]
				Expect(targets).NotTo(HaveKey(target))
			}
			targets[target] = append(targets[target], words)
		}

		for _, image := range images {
			Expect(targets).To(HaveKey(image))
			Expect(targets[image]).To(HaveLen(4))
			Expect(targets[image][0]).To(Equal([]string{"FROM", "distroless-static", "AS", image}))
			copied := targets[image][1]
			Expect(copied).To(HaveLen(4))
			Expect(copied[:2]).To(Equal([]string{"COPY", "--from=builder"}))
			binary := path.Base(copied[2])
			Expect(copied[2:]).To(Equal([]string{"/src/bin/" + binary, "/" + binary}))
			Expect(filepath.Join("..", "cmd", binary, "main.go")).To(BeAnExistingFile())
			Expect(targets[image][3]).To(Equal([]string{"ENTRYPOINT", `["/` + binary + `"]`}))
		}
		Expect(targets).To(HaveLen(len(images)+2), "targets that nobody asks for")
	})

	It("should run as a user who is not root", func() {
		Expect(instructions).To(ContainElement(HaveExactElements("FROM", MatchRegexp(`^gcr\.io/distroless/static-debian\d+:nonroot@sha256:[0-9a-f]{64}$`), "AS", "distroless-static")))
		Expect(instructions).NotTo(ContainElement(ContainElement("USER")))
	})

	It("should build as developers do, with a Go that is new enough", func() {
		Expect(instructions).To(ContainElement(HaveExactElements("RUN", "GOOS=$TARGETOS", "GOARCH=$TARGETARCH", "make", "build")))

		wanted := regexp.MustCompile(`(?m)^go (\S+)$`).FindStringSubmatch(read("../go.mod"))
		Expect(wanted).To(HaveLen(2))
		used := regexp.MustCompile(`(?m)^FROM --platform=\$BUILDPLATFORM golang:([^@\s]+)@sha256:[0-9a-f]{64} AS builder$`).FindStringSubmatch(read("../Dockerfile"))
		Expect(used).To(HaveLen(2))
		Expect(semver.MustParse(used[1]).LessThan(semver.MustParse(wanted[1]))).To(BeFalse())
	})

	It("should get all files that git has", func() {
		var ignored []string
		for line := range strings.Lines(read("../.gitignore")) {
			ignored = append(ignored, strings.Trim(strings.TrimSpace(line), "/"))
		}
		for line := range strings.Lines(read("../.dockerignore")) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				Expect(ignored).To(ContainElement(strings.TrimPrefix(line, "**/")))
			}
		}
	})
})

var _ = Describe("Version", func() {
	It("should be that of the charts and of their default images", func() {
		version := strings.TrimSpace(read("../VERSION"))
		for _, chart := range charts.All {
			content := readYAML(chart, "Chart.yaml")
			Expect("v" + content["version"].(string)).To(Equal(version))
			Expect(content).NotTo(HaveKey("appVersion"), "a release does not set it")
		}
		for _, chart := range []charts.Chart{charts.Extension, charts.AdmissionRuntime} {
			Expect(container(render(chart, nil)).Image).To(HaveSuffix(":" + version))
		}
	})
})

var _ = Describe("Workflows", func() {
	// Gardener's own workflows are taken from a branch that pins what they use, as everywhere in Gardener.
	It("should use nothing of others that can be exchanged", func() {
		var files []string
		for _, pattern := range []string{"../.github/workflows/*.yaml", "../.github/actions/*/*.yaml"} {
			matches, err := filepath.Glob(pattern)
			Expect(err).NotTo(HaveOccurred())
			files = append(files, matches...)
		}
		Expect(len(files)).To(BeNumerically(">", 1))
		for _, file := range files {
			for _, uses := range regexp.MustCompile(`(?m)^[ -]*uses: (.+)$`).FindAllStringSubmatch(read(file), -1) {
				Expect(uses[1]).To(MatchRegexp(`^(\./\S+|gardener/cc-utils/\S+@v1|\S+@[0-9a-f]{40} # v\d+(\.\d+){2})$`), file)
			}
		}
	})

	It("should build and test nothing in forks but pull requests", func() {
		for _, name := range []string{"release", "snapshot", "nightly"} {
			var workflow struct {
				Jobs map[string]struct {
					If    string
					Needs any
				}
			}
			Expect(yaml.Unmarshal([]byte(read("../.github/workflows/"+name+".yaml")), &workflow)).To(Succeed())
			Expect(workflow.Jobs).NotTo(BeEmpty())
			for job, content := range workflow.Jobs {
				if content.Needs == nil {
					Expect(content.If).To(Equal("github.repository == 'gardener/gardener-extension-machine-preservation'"), name+" "+job)
				}
			}
		}
	})

	It("should build the images and charts that there are", func() {
		var workflow struct {
			Jobs map[string]struct {
				Strategy struct {
					Matrix struct {
						Args []struct {
							Name, Target, Dir string
							OCIRepository     string `json:"oci-repository"`
						}
					}
				}
			}
		}
		Expect(yaml.Unmarshal([]byte(read("../.github/workflows/build.yaml")), &workflow)).To(Succeed())

		var targets, stages []string
		for _, args := range workflow.Jobs["oci-images"].Strategy.Matrix.Args {
			targets = append(targets, args.Target)
			Expect(args.OCIRepository).To(Equal("gardener/extensions/" + args.Target))
		}
		for _, stage := range regexp.MustCompile(`(?m)^FROM distroless-static AS (\S+)$`).FindAllStringSubmatch(read("../Dockerfile"), -1) {
			stages = append(stages, stage[1])
		}
		Expect(targets).To(ConsistOf(stages))

		var built []charts.Chart
		for _, args := range workflow.Jobs["helmcharts"].Strategy.Matrix.Args {
			chart := charts.Chart(strings.TrimPrefix(args.Dir, "charts/"))
			built = append(built, chart)
			Expect(readYAML(chart, "Chart.yaml")).To(HaveKeyWithValue("name", args.Name))
		}
		Expect(built).To(ConsistOf(charts.All))
	})

	It("should release what is built of the plugin, with what is in it and where it comes from", func() {
		type identity struct{ Name, OS, Architecture string }
		var build struct {
			Jobs map[string]struct {
				Permissions map[string]string
				Strategy    struct {
					Matrix struct{ Platform []struct{ OS, Arch string } }
				}
				Steps []struct {
					Uses string
					With map[string]string
				}
			}
		}
		Expect(yaml.Unmarshal([]byte(read("../.github/workflows/build.yaml")), &build)).To(Succeed())
		plugin := build.Jobs["plugin"]
		names := regexp.MustCompile(`(?m)^name: (\S+)$`).FindAllStringSubmatch(plugin.Steps[len(plugin.Steps)-1].With["ocm-resources"], -1)
		Expect(names).To(HaveLen(2), "the archive and what is in it")
		var built []identity
		for _, platform := range plugin.Strategy.Matrix.Platform {
			for _, name := range names {
				built = append(built, identity{name[1], platform.OS, platform.Arch})
			}
		}

		for _, name := range []string{"release", "snapshot"} {
			var workflow struct {
				Jobs map[string]struct {
					Permissions map[string]string
					With        map[string]string
				}
			}
			Expect(yaml.Unmarshal([]byte(read("../.github/workflows/"+name+".yaml")), &workflow)).To(Succeed())
			for permission, access := range plugin.Permissions {
				Expect(workflow.Jobs["build"].Permissions).To(HaveKeyWithValue(permission, access), "what is called may do no more than the caller")
			}
			if name == "release" {
				var assets []struct{ ID identity }
				Expect(yaml.Unmarshal([]byte(workflow.Jobs["release"].With["assets"]), &assets)).To(Succeed())
				var released []identity
				for _, asset := range assets {
					released = append(released, asset.ID)
				}
				Expect(released).To(ConsistOf(built))
			}
		}
		Expect(plugin.Permissions).To(HaveKeyWithValue("attestations", "write"))
		Expect(plugin.Steps).To(ContainElement(And(
			HaveField("Uses", HavePrefix("actions/attest-build-provenance@")), HaveField("With", HaveKeyWithValue("subject-path", "/tmp/blobs.d/kubectl-preserve_*")))))
	})
})

func read(file string) string {
	GinkgoHelper()
	content, err := os.ReadFile(file)
	Expect(err).NotTo(HaveOccurred())
	return string(content)
}
