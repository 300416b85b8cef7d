// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
)

var _ = Describe("Binaries", func() {
	var (
		env              environment
		moduleDir, cache string
		out              *gbytes.Buffer
	)

	write := func(path, content string) {
		GinkgoHelper()
		Expect(os.MkdirAll(filepath.Dir(path), 0o755)).To(Succeed())
		Expect(os.WriteFile(path, []byte(content), 0o644)).To(Succeed())
	}

	BeforeEach(func(ctx SpecContext) {
		var err error
		env, err = goEnvironment(ctx)
		Expect(err).NotTo(HaveOccurred())
		env.GOMOD = filepath.Join(GinkgoT().TempDir(), "go.mod")
		moduleDir, cache, out = env.moduleDir("greeter"), GinkgoT().TempDir(), gbytes.NewBuffer()

		modules["greeter"] = module{
			ldflags: []string{"-X", "main.greeting=hello"},
			names:   map[string]string{"greeter": "greet"},
		}
		DeferCleanup(func() { delete(modules, "greeter") })
		write(filepath.Join(moduleDir, "go.mod"), "module example.org/greeter\n\ngo 1.26.0\n\ntool example.org/greeter\n")
		write(filepath.Join(moduleDir, "go.sum"), "")
		write(filepath.Join(moduleDir, "main.go"), "package main\n\nvar greeting string\n\nfunc main() { print(greeting) }\n")
	})

	Describe("#ensure", func() {
		It("should build the tools of a module with its flags, by their names", func(ctx SpecContext) {
			dir, err := env.ensure(ctx, out, cache, "greeter")
			Expect(err).NotTo(HaveOccurred())
			output, err := exec.CommandContext(ctx, filepath.Join(dir, "greet")).CombinedOutput()
			Expect(err).NotTo(HaveOccurred())
			Expect(string(output)).To(Equal("hello"))
		})

		It("should not build what the cache has", func(ctx SpecContext) {
			dir, err := env.ensure(ctx, out, cache, "greeter")
			Expect(err).NotTo(HaveOccurred())

			write(filepath.Join(moduleDir, "main.go"), "this cannot be built")
			Expect(env.ensure(ctx, out, cache, "greeter")).To(Equal(dir))
		})

		It("should build again what has source of its own", func(ctx SpecContext) {
			write(filepath.Join(moduleDir, "go.mod"), "module example.org/greeter\n\ngo 1.26.0\n\ntool example.org/greeter/own\n")
			for _, greeting := range []string{"hello", "bye"} {
				write(filepath.Join(moduleDir, "own", "main.go"), "package main\n\nfunc main() { print(\""+greeting+"\") }\n")
				modules["greeter"] = module{}
				dir, err := env.ensure(ctx, out, cache, "greeter")
				Expect(err).NotTo(HaveOccurred())
				output, err := exec.CommandContext(ctx, filepath.Join(dir, "own")).CombinedOutput()
				Expect(err).NotTo(HaveOccurred())
				Expect(string(output)).To(Equal(greeting))
			}
		})

		It("should build once if asked twice at the same time", func(ctx SpecContext) {
			var group sync.WaitGroup
			for range 2 {
				group.Go(func() {
					defer GinkgoRecover()
					dir, err := env.ensure(ctx, out, cache, "greeter")
					Expect(err).NotTo(HaveOccurred())
					Expect(filepath.Join(dir, "greet")).To(BeARegularFile())
				})
			}
			group.Wait()
			Expect(filepath.Glob(filepath.Join(cache, "*.partial"))).To(BeEmpty())
		})

		It("should clean up after a build that was killed", func(ctx SpecContext) {
			key, err := env.key("greeter", modules["greeter"].flags())
			Expect(err).NotTo(HaveOccurred())
			write(filepath.Join(cache, "greeter-"+key+".partial", "half"), "a binary")

			dir, err := env.ensure(ctx, out, cache, "greeter")
			Expect(err).NotTo(HaveOccurred())
			Expect(filepath.Join(dir, "half")).NotTo(BeAnExistingFile())
		})

		It("should show what the compiler says, and cache nothing", func(ctx SpecContext) {
			write(filepath.Join(moduleDir, "main.go"), "package main\n\nfunc main() { undefined() }\n")
			_, err := env.ensure(ctx, out, cache, "greeter")
			Expect(err).To(MatchError(And(ContainSubstring("could not build greeter"), ContainSubstring("main.go:3:15: undefined"))))
			Expect(filepath.Glob(filepath.Join(cache, "greeter-*", "*"))).To(BeEmpty())
		})

		It("should not know other modules", func(ctx SpecContext) {
			_, err := env.ensure(ctx, out, cache, "nothing")
			Expect(err).To(MatchError(ContainSubstring(`unknown tools module "nothing"`)))
		})
	})

	Describe("with a directory in the place of a module", func() {
		var library string

		BeforeEach(func() {
			library = GinkgoT().TempDir()
			write(filepath.Join(library, "go.mod"), "module example.org/library\n\ngo 1.26.0\n")
			write(filepath.Join(library, "library.go"), "package library\n\nconst Name = \"Ada\"\n")
			write(filepath.Join(moduleDir, "go.mod"), "module example.org/greeter\n\ngo 1.26.0\n\ntool example.org/greeter\n\nrequire example.org/library v1.2.3\n")
			write(filepath.Join(moduleDir, "main.go"), "package main\n\nimport \"example.org/library\"\n\nvar greeting string\n\nfunc main() { print(greeting, library.Name) }\n")
			env.replacement = replacement{name: "greeter", path: "example.org/library", dir: library}
		})

		build := func(ctx SpecContext) (dir, output string) {
			GinkgoHelper()
			dir, err := env.ensure(ctx, out, cache, "greeter")
			Expect(err).NotTo(HaveOccurred())
			said, err := exec.CommandContext(ctx, filepath.Join(dir, "greet")).CombinedOutput()
			Expect(err).NotTo(HaveOccurred())
			return dir, string(said)
		}

		It("should build from it, and again when a file of it changes", func(ctx SpecContext) {
			first, said := build(ctx)
			Expect(said).To(Equal("helloAda"))
			before, err := os.ReadFile(filepath.Join(moduleDir, "go.mod"))
			Expect(err).NotTo(HaveOccurred())

			write(filepath.Join(library, "library.go"), "package library\n\nconst Name = \"Bob\"\n")
			second, said := build(ctx)
			Expect(said).To(Equal("helloBob"))
			Expect(second).NotTo(Equal(first))

			write(filepath.Join(library, ".git", "index"), "something")
			third, _ := build(ctx)
			Expect(third).To(Equal(second))
			Expect(os.ReadFile(filepath.Join(moduleDir, "go.mod"))).To(Equal(before), "the tools module is not touched")
		})

		It("should know where the source is, and say that it is not the tagged one", func(ctx SpecContext) {
			Expect(env.source(ctx, "greeter", "example.org/library")).To(Equal(Module{Version: "v1.2.3-checkout", Dir: library}))
		})

		It("should know the source of what go.mod itself replaces", func(ctx SpecContext) {
			env.replacement = replacement{}
			write(filepath.Join(moduleDir, "go.mod"), "module example.org/greeter\n\ngo 1.26.0\n\nrequire example.org/library v1.2.3\n\nreplace example.org/library => "+library+"\n")
			Expect(env.source(ctx, "greeter", "example.org/library")).To(Equal(Module{Version: "v1.2.3-checkout", Dir: library}))
		})
	})

	Describe("#mcmCheckout", func() {
		DescribeTable("should say what is wrong", func(generation, content, message string) {
			dir := GinkgoT().TempDir()
			write(filepath.Join(dir, "go.mod"), content)
			variables := map[string]string{"MCM": generation, "MCM_SOURCE": dir}
			_, err := mcmCheckout(func(key string) string { return variables[key] })
			Expect(err).To(MatchError(ContainSubstring(message)))
		},
			Entry("no generation", "", "module "+mcmModule+"\n", `MCM="" must say for which generation MCM_SOURCE is built: 0.61 or 0.62`),
			Entry("another generation", "0.60", "module "+mcmModule+"\n", `MCM="0.60" must say`),
			Entry("another module", "0.62", "module example.org/other\n", "must be the absolute path of a checkout of "+mcmModule),
		)

		It("should take the place of one generation's module", func() {
			dir := GinkgoT().TempDir()
			write(filepath.Join(dir, "go.mod"), "module "+mcmModule+"\n\ngo 1.26.0\n")
			variables := map[string]string{"MCM": "0.61", "MCM_SOURCE": dir}
			Expect(mcmCheckout(func(key string) string { return variables[key] })).To(Equal(replacement{name: MCM061, path: mcmModule, dir: dir}))
			delete(variables, "MCM_SOURCE")
			Expect(mcmCheckout(func(key string) string { return variables[key] })).To(BeZero())
		})
	})

	Describe("#key", func() {
		It("should change with whatever a build depends on", func() {
			keys := map[string]bool{}
			add := func(env environment, flags ...string) {
				GinkgoHelper()
				key, err := env.key("greeter", flags)
				Expect(err).NotTo(HaveOccurred())
				Expect(keys).NotTo(HaveKey(key))
				keys[key] = true
			}

			add(env, "-a")
			add(env, "-b")
			newer := env
			newer.GOVERSION = "go9.9"
			add(newer, "-a")
			other := env
			other.GOARCH = "other"
			add(other, "-a")
			write(filepath.Join(moduleDir, "go.sum"), "one line")
			add(env, "-a")
			write(filepath.Join(moduleDir, "go.mod"), "module example.org/greeter\n")
			add(env, "-a")
		})
	})

	Describe("#report", func() {
		It("should not mention what is quick", func() {
			Expect(report(out, "something", func() error { return nil })).To(Succeed())
			Expect(out.Contents()).To(BeEmpty())
		})

		It("should tell when what takes longer begins and ends", func() {
			begun := func() error {
				for end := time.Now().Add(time.Minute); !bytes.Contains(out.Contents(), []byte("Building something")); time.Sleep(10 * time.Millisecond) {
					if time.Now().After(end) {
						return errors.New("nothing was told")
					}
				}
				return nil
			}
			Expect(report(out, "something", begun)).To(Succeed())
			Expect(out).To(gbytes.Say("Building something"))
			Expect(out).To(gbytes.Say("Built something in [1-9]"))
		})
	})

	It("should have a directory for each of its tools modules", func(ctx SpecContext) {
		env, err := goEnvironment(ctx)
		Expect(err).NotTo(HaveOccurred())
		delete(modules, "greeter")
		for name := range modules {
			Expect(filepath.Join(env.moduleDir(name), "go.mod")).To(BeARegularFile())
		}
	})
})

var _ = Describe("#linkAll", func() {
	It("should put files in the place of others, and leave those that are there already", func() {
		from, to := GinkgoT().TempDir(), filepath.Join(GinkgoT().TempDir(), "bin")
		files := map[string]string{"command": filepath.Join(from, "command")}
		Expect(os.WriteFile(files["command"], []byte("new"), 0o600)).To(Succeed())
		for range 2 {
			Expect(linkAll(files, to)).To(Equal(map[string]string{"command": filepath.Join(to, "command")}))
			Expect(os.ReadFile(filepath.Join(to, "command"))).To(BeEquivalentTo("new"))
		}
		Expect(os.Remove(filepath.Join(to, "command"))).To(Succeed())
		Expect(os.WriteFile(filepath.Join(to, "command"), []byte("old"), 0o600)).To(Succeed())
		_, err := linkAll(files, to)
		Expect(err).NotTo(HaveOccurred())
		Expect(os.ReadFile(filepath.Join(to, "command"))).To(BeEquivalentTo("new"))
		Expect(linkAll(files, from)).To(Equal(files))
	})

	It("should fail where a file is gone", func() {
		dir := GinkgoT().TempDir()
		for _, to := range []string{dir, GinkgoT().TempDir()} {
			_, err := linkAll(map[string]string{"command": filepath.Join(dir, "command")}, to)
			Expect(err).To(MatchError(os.ErrNotExist))
		}
	})
})
