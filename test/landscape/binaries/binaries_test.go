// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
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
			Expect(report(out, "something", func() error { time.Sleep(1100 * time.Millisecond); return nil })).To(Succeed())
			Expect(out).To(gbytes.Say("Building something"))
			Expect(out).To(gbytes.Say("Built something in 1s"))
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
