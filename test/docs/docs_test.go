// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/plugin"
	"github.com/gardener/gardener-extension-machine-preservation/test/docs"
)

const root = "../.."

var objects = docs.Objects{
	Machine: "m", Node: "n", Other: "o", Pool: "p", MachineDeployment: "d", ControlPlane: "c", Seed: "/seed", Shoot: "/shoot",
}

// commandsOf returns the commands of a page.
func commandsOf(lines ...string) (commands []docs.Command) {
	GinkgoHelper()
	blocks, err := docs.Blocks("page.md", strings.Join(lines, "\n"))
	Expect(err).NotTo(HaveOccurred())
	for _, block := range blocks {
		commands = append(commands, block.Commands()...)
	}
	return commands
}

var _ = Describe("Reading", func() {
	It("should find the commands of all shells", func() {
		Expect(commandsOf("# A", "```bash", "a   # why", "", "# b", "c '#' \\", "  -d   # e", "```", "  ```sh", "  f |", "    g", "  ```", "```yaml", "h: i", "```")).To(Equal([]docs.Command{
			{Page: "page.md", Line: 3, Text: "a"},
			{Page: "page.md", Line: 6, Text: "c '#' -d"},
			{Page: "page.md", Line: 10, Text: "f | g"},
		}))
	})

	It("should find those after prompts, without what they print", func() {
		Expect(commandsOf("```console", "$ a", "b", "$ c", "```", "```text", "$ d", "e", "```", "```text", "f", "$ g", "```")).To(Equal([]docs.Command{
			{Page: "page.md", Line: 2, Text: "a"}, {Page: "page.md", Line: 4, Text: "c"}, {Page: "page.md", Line: 7, Text: "d"},
		}))
	})

	It("should find arguments of several lines, and variables of the block", func() {
		Expect(commandsOf("```bash", "export A=1", "b -p '[{", `  "c": "d # e"}]'`, "```", "```bash", "f", "```")).To(Equal([]docs.Command{
			{Page: "page.md", Line: 3, Text: "b -p '[{\n  \"c\": \"d # e\"}]'", Exports: "export A=1"}, {Page: "page.md", Line: 7, Text: "f"},
		}))
	})

	It("should find why a block is not run", func() {
		Expect(commandsOf("<!-- not run: it needs a b -->", "```bash", "a", "```", "```bash", "b", "```")).To(HaveExactElements(
			HaveField("NotRun", "it needs a b"), HaveField("NotRun", "")))
	})

	DescribeTable("should refuse", func(message string, lines ...string) {
		_, err := docs.Blocks("page.md", strings.Join(lines, "\n"))
		Expect(err).To(MatchError(message))
	},
		Entry("no reason", "page.md:1: it must be <!-- not run: REASON -->", "<!-- not run -->", "```bash", "```"),
		Entry("a reason for no block", "page.md:2: no block follows the line that says why it is not run", "", "<!-- not run: it is b -->", "a", "```bash", "```"),
		Entry("a block without an end", "page.md:2: the block has no end", "```bash", "a"),
	)
})

var _ = Describe("A command", func() {
	fill := func(text string) (string, error) {
		return objects.Fill(docs.Command{Page: "page.md", Line: 3, Text: text})
	}

	DescribeTable("should name what there is", func(text, filled string) {
		Expect(fill(text)).To(Equal(filled))
	},
		Entry("of a node", "a <node> node-1 NODE $NODE", "a n n n $NODE"),
		Entry("of two nodes", "a node-1 node-2", "a n o"),
		Entry("of a machine", "-n infra-shoot--local--local machine-<machine>", "-n infra-c machine-m"),
		Entry("of the shoot", "--kubeconfig=$SHOOT -n <namespace> get nodemaintenance <name>", "--kubeconfig=$SHOOT -n operators get nodemaintenance docs"),
		Entry("of a file", "a --from evidence-<node>-<time>.tar.gz", "a --from evidence.tar.gz"),
	)

	DescribeTable("should name nothing that nobody knows", func(text, message string) {
		_, err := fill(text)
		Expect(err).To(MatchError(message))
	},
		Entry("a placeholder", "a <b c>", "page.md:3: unknown placeholder <b c>"),
		Entry("a variable", `a "$B"`, "page.md:3: unknown variable $B"),
	)

	It("should have a variable that its block sets", func() {
		Expect(objects.Fill(docs.Command{Exports: "export B=1", Text: "a $B"})).To(Equal("export B=1\na $B"))
	})

	DescribeTable("should be judged", func(text, message string) {
		err := docs.Command{Page: "page.md", Line: 3, Text: text}.Judge(root)
		if message == "" {
			Expect(err).NotTo(HaveOccurred())
		} else {
			Expect(err).To(MatchError(HavePrefix("page.md:3: " + text + ": " + message)))
		}
	},
		Entry("make", "DEMO_EXIT=1 make demo STORY=maintenance", ""),
		Entry("an unknown target", "make tests", "the Makefile has no target tests"),
		Entry("a variable of another target", "make demo RUNS=3", "nothing reads RUNS"),
		Entry("go test", "go test -count=1 -v ./test/e2e -run '^TestLongUpgrade062$' -upgrade-from=v0.1.0", ""),
		Entry("an unknown package", "go test ./test/nothing", "there is no package in ../../test/nothing"),
		Entry("an unknown test", "go test ./test/e2e -run TestNothing", "./test/e2e has no test that TestNothing selects"),
		Entry("an unknown benchmark", "go test ./test/e2e -run '^$' -bench Nothing", "./test/e2e has no benchmark that Nothing selects"),
		Entry("an unknown flag of a test", "go test ./test/e2e -nothing=1", "./test/e2e has no flag -nothing"),
		Entry("kubectl preserve", "kubectl preserve now <node> --for 6h", ""),
		Entry("an unknown command of kubectl preserve", "kubectl preserve nothing", `unknown command "nothing"`),
		Entry("an unknown flag of kubectl preserve", "kubectl preserve list --nothing", "unknown flag: --nothing"),
	)
})

var _ = Describe("The pages", func() {
	It("should have commands that are judged or run, or say why not", func() {
		commands, err := docs.Read(root)
		Expect(err).NotTo(HaveOccurred())
		counts := map[string]int{}
		for _, command := range commands {
			Expect(command.Judge(root)).To(Succeed())
			switch {
			case command.NotRun != "":
				counts["not run"]++
			case command.IsJudged():
				counts["judged"]++
			default:
				counts["run"]++
				_, err := objects.Fill(command)
				Expect(err).NotTo(HaveOccurred())
			}
		}
		AddReportEntry("commands", counts)
		Expect(counts["run"]).To(BeNumerically(">", 100))
		Expect(counts["judged"]).To(BeNumerically(">", 30))
		Expect(counts["not run"]).To(BeNumerically("<", 40))
	})

	It("should name commands and flags of kubectl preserve that there are, in sentences, examples and outputs, too", func() {
		texts := map[string]string{}
		for _, pattern := range []string{"README.md", "docs/*.md", "docs/*/*.md", "pkg/plugin/testdata/*.txt", "pkg/plugin/testdata/*/*.txt"} {
			files, err := filepath.Glob(filepath.Join(root, pattern))
			Expect(err).NotTo(HaveOccurred())
			for _, file := range files {
				content, err := os.ReadFile(file)
				Expect(err).NotTo(HaveOccurred())
				texts[file] = string(content)
			}
		}
		var examples func(cmd *cobra.Command)
		examples = func(cmd *cobra.Command) {
			texts[cmd.CommandPath()] = cmd.Long + "\n" + cmd.Example
			for _, sub := range cmd.Commands() {
				examples(sub)
			}
		}
		examples(plugin.NewCommand(genericiooptions.IOStreams{In: strings.NewReader(""), Out: io.Discard, ErrOut: io.Discard}))

		found := 0
		for where, text := range texts {
			for _, match := range regexp.MustCompile("kubectl preserve ([a-z][^`'(,;\n#]*)").FindAllStringSubmatch(text, -1) {
				found++
				Expect(docs.JudgePlugin(match[1])).To(Succeed(), "%s: %s", where, match[0])
			}
		}
		Expect(found).To(BeNumerically(">", 50))
	})
})
