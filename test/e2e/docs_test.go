// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/test/conformance"
	"github.com/gardener/gardener-extension-machine-preservation/test/docs"
)

const (
	// docsPool has the machines that commands of pages change, and docsMachines is how many there are.
	docsPool, docsMachines = "docs", 6
	// docsAtOnce is how many pages or commands run side by side.
	docsAtOnce = 4
	// longestCommand bounds a command, and a watch without an end is stopped after watched.
	longestCommand, watched = 4 * time.Minute, 3 * time.Second
	// attempts is how often a command may fail: on a busy machine, what kubectl preserve waits for takes longer than it has patience.
	attempts = 3
)

var (
	// changing are commands that change something, or wait for what others on the page have changed.
	changing = regexp.MustCompile(`\b(annotate|apply|create|delete|patch|taint|uncordon|rollout|cp|wait)\b|--until|preserve (now|when-failed|forbid|release|extend|power-cycle|maintenance (start|done))`)
	// last are those that take something away from others, in this order: the failed machine, stored evidence, and for half a minute
	// machine-controller-manager.
	last = []string{"preserve power-cycle", "delete configmaps", "rollout restart"}
	// endless is a command that only watches.
	endless = regexp.MustCompile(` -w\b`)
	// tools are what not every machine has: commands by their names in the module that pins them.
	tools = map[string]string{"helm": "helm", "gojq": "jq"}

	// before is what must have been done before a command.
	before = []struct {
		command *regexp.Regexp
		do      string
	}{
		{regexp.MustCompile(`preserve (?:extend|release) (\S+)`), `kubectl preserve now $1 --wait`},
		{regexp.MustCompile(`preserve maintenance done (\S+)`), `kubectl preserve maintenance start $1 -n operators --wait || true`}, // it may have been started
		{regexp.MustCompile(`taint node (\S+) (\S+)-`), `kubectl taint --overwrite node $1 $2:NoSchedule`},
		{regexp.MustCompile(`patch nodemaintenance (firmware\S+)`), `kubectl apply -f maintenance.yaml && kubectl -n operators wait --for=condition=Ready nodemaintenance/$1`},
	}
)

// pages runs the commands of the documents.
type pages struct {
	*life
	// work is the directory in which the commands run, each in one of its own that leads to all that is here.
	work string
	// tools is the directory with the tools.
	tools string
	// failed is a machine that has failed and is preserved, with stored evidence.
	failed *machinev1alpha1.Machine

	lock  sync.Mutex
	taken map[string]bool
}

// docs runs the commands of all pages that say nothing else. Those that change something run in the order of their page, with machines
// that no other page has. What takes something away from others comes last.
func (l *life) docs() {
	p := &pages{life: l, work: l.t.TempDir(), failed: l.machineOf(autoPool), taken: map[string]bool{}}
	commands, err := docs.Read("../..")
	l.Expect(err).NotTo(HaveOccurred())
	changes, reads, ends := map[string][]docs.Command{}, []docs.Command(nil), []docs.Command(nil)
	known := map[string]bool{}
	for _, command := range commands {
		filled, err := p.objects(p.failed).Fill(command)
		switch {
		case command.NotRun != "" || command.IsJudged():
			continue
		case err != nil:
			l.t.Error(err)
		case known[filled]: // another page has it
		case rank(command) >= 0:
			ends = append(ends, command)
		case changing.MatchString(command.Text):
			changes[command.Page] = append(changes[command.Page], command)
		default:
			reads = append(reads, command)
		}
		known[filled] = true
	}

	p.prepare()
	p.sideBySide(len(changes), func(i int) {
		page := slices.Sorted(maps.Keys(changes))[i]
		machines := []*machinev1alpha1.Machine{p.take()}
		if slices.ContainsFunc(changes[page], func(c docs.Command) bool { return strings.Contains(c.Text, "node-1 node-2") }) {
			machines = append(machines, p.take())
		}
		defer p.giveBack(machines...)
		for _, command := range changes[page] {
			p.run(command, machines...)
		}
	})
	p.gather()
	p.sideBySide(len(reads), func(i int) { p.run(reads[i], p.failed) })
	slices.SortStableFunc(ends, func(a, b docs.Command) int { return rank(a) - rank(b) })
	for _, command := range ends {
		p.run(command, p.failed)
	}
	p.tidy()
}

// rank returns the place of a command among those that come last, or -1.
func rank(command docs.Command) int {
	return slices.IndexFunc(last, func(part string) bool { return strings.Contains(command.Text, part) })
}

// objects are those that the names of the pages stand for.
func (p *pages) objects(machines ...*machinev1alpha1.Machine) docs.Objects {
	return docs.Objects{
		Machine: machines[0].Name, Node: nodeName(machines[0]), Other: nodeName(machines[len(machines)-1]), Pool: autoPool,
		MachineDeployment: p.Namespace + "-" + otherPool + "-z1", ControlPlane: p.Namespace,
		Seed: p.Plugin.SeedKubeconfig, Shoot: p.Plugin.ShootKubeconfig,
	}
}

func nodeName(machine *machinev1alpha1.Machine) string {
	return machine.Labels[machinev1alpha1.NodeLabelKey]
}

// prepare makes what commands need, and has a machine fail.
func (p *pages) prepare() {
	repository, err := filepath.Abs("../..")
	p.Expect(err).NotTo(HaveOccurred())
	p.tools = p.t.TempDir()
	for tool, name := range tools {
		path, err := exec.CommandContext(p.ctx, "go", "tool", "-modfile="+filepath.Join(repository, "hack/tools/commands/go.mod"), "-n", tool).Output()
		p.Expect(err).NotTo(HaveOccurred())
		p.Expect(os.Symlink(strings.TrimSpace(string(path)), filepath.Join(p.tools, name))).To(Succeed())
	}
	for name, target := range map[string]string{
		".landscape": string(p.landscape.Directory), "bin": p.landscape.Directory.Binaries(),
		"seed.yaml": p.Plugin.SeedKubeconfig, "shoot.yaml": p.Plugin.ShootKubeconfig,
		"charts": filepath.Join(repository, "charts"), "example": filepath.Join(repository, "example"), "VERSION": filepath.Join(repository, "VERSION"),
	} {
		p.Expect(os.Symlink(target, filepath.Join(p.work, name))).To(Succeed())
	}

	shoot := withPowerCycles(p.WithT, shootFor(p.WithT, []conformance.Scenario{{Name: autoPool, Share: 1}, {Name: otherPool}, {Name: docsPool}}))
	shoot.Spec.Provider.Workers[2].Minimum, shoot.Spec.Provider.Workers[2].Maximum = docsMachines, docsMachines
	p.apply(shoot)
	p.Expect(p.Inject(p.ctx, p.failed, conformance.KernelHang)).To(Succeed())
	p.does(`kubectl create namespace ` + docs.Namespace)
	p.does(`kubectl create poddisruptionbudget ` + docs.Name + ` -n ` + docs.Namespace + ` --selector app=docs --min-available 1`)
	p.does(`kubectl create -f - <<<'{"apiVersion": "maintenance.nvidia.com/v1alpha1", "kind": "NodeMaintenance", "metadata": {"name": "` + docs.Name +
		`", "namespace": "` + docs.Namespace + `"}, "spec": {"requestorID": "docs.example.com", "nodeName": "nobody"}}'`)
}

// gather waits until evidence of the failed machine is stored, and writes a bundle.
func (p *pages) gather() {
	p.eventually(func(g Gomega) {
		g.Expect(p.fresh(g, p.failed).Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationPhase, preservation.PhaseFailedPreserved))
		key := types.NamespacedName{Namespace: "machine-preservation-evidence", Name: "machine-preservation-evidence-01"}
		g.Expect(p.Shoot.Get(p.ctx, key, &corev1.Secret{})).To(Succeed())
	})
	bundle := filepath.Join(p.work, docs.Bundle)
	p.does(`kubectl preserve evidence ` + nodeName(p.failed) + ` -o ` + bundle)
}

// tidy ends what commands have left.
func (p *pages) tidy() {
	p.does(`kubectl preserve release --wait --timeout 3m ` + nodeName(p.failed) + ` && kubectl preserve release ` + nodeName(p.failed)) // the second one forbids no longer
	p.does(`kubectl --kubeconfig $HOSTS -n $NAMESPACE annotate machinedeployments --all machine-preservation.extensions.gardener.cloud/forbidden-`)
	p.does(`kubectl delete namespace ` + docs.Namespace)
	p.apply(p.shoot)
}

// take returns a machine that nothing has been done to, and that no other page has.
func (p *pages) take() (found *machinev1alpha1.Machine) {
	p.eventually(func(g Gomega) {
		p.lock.Lock()
		defer p.lock.Unlock()
		machines := &machinev1alpha1.MachineList{}
		g.Expect(p.Seed.List(p.ctx, machines, client.InNamespace(p.Namespace))).To(Succeed())
		found = nil
		for _, machine := range machines.Items {
			if machine.Spec.NodeTemplateSpec.Labels[poolLabel] == docsPool && machine.DeletionTimestamp == nil && !p.taken[machine.Name] &&
				machine.Status.CurrentStatus.Phase == machinev1alpha1.MachineRunning && len(traces(machine.Annotations)) == 0 {
				found = &machine
			}
		}
		g.Expect(found).NotTo(BeNil())
		p.taken[found.Name] = true
	})
	return found
}

// giveBack undoes what the commands of a page have done to machines.
func (p *pages) giveBack(machines ...*machinev1alpha1.Machine) {
	for _, machine := range machines {
		p.Expect(client.IgnoreNotFound(p.Inject(p.ctx, machine, conformance.NoFault))).To(Succeed())
		node := nodeName(machine)
		p.does(`for m in $(kubectl -n ` + docs.Namespace + ` get nodemaintenances --field-selector spec.nodeName=` + node + ` -o name); do
			kubectl -n ` + docs.Namespace + ` delete --wait=false $m && kubectl -n ` + docs.Namespace + ` patch $m --type=merge -p '{"metadata":{"finalizers":null}}' || true; done
			kubectl annotate node ` + node + ` node.machine.sapcloud.io/preserve- machine-preservation.extensions.gardener.cloud/{timeout,power-cycle}- || true
			kubectl --kubeconfig $HOSTS -n $NAMESPACE annotate machine ` + machine.Name + ` host.metal3.io/external-remediation- || true`)
		p.lock.Lock()
		delete(p.taken, machine.Name)
		p.lock.Unlock()
	}
}

// sideBySide does something for 0 to n-1.
func (p *pages) sideBySide(n int, do func(int)) {
	var group sync.WaitGroup
	slots := make(chan struct{}, docsAtOnce)
	for i := range n {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			do(i)
		})
	}
	group.Wait()
}

// run runs a command of a page.
func (p *pages) run(command docs.Command, machines ...*machinev1alpha1.Machine) {
	objects := p.objects(machines...)
	text, err := objects.Fill(command)
	p.Expect(err).NotTo(HaveOccurred())
	dir := p.t.TempDir()
	if strings.Contains(text, "maintenance.yaml") || strings.Contains(text, "firmware") {
		p.Expect(os.WriteFile(filepath.Join(dir, "maintenance.yaml"), []byte(p.manifest(command.Page, objects)), 0o600)).To(Succeed())
	}
	started := time.Now()
	for attempt := 1; ; attempt++ {
		output, err := p.prepared(dir, command, text, objects)
		took := time.Since(started).Round(time.Millisecond)
		switch {
		case err == nil:
			p.t.Logf("%s (%s)\n%s", command, took, output[:min(len(output), 400)])
			return
		case attempt == attempts:
			p.t.Errorf("%s\nis run as: %s\n%v after %s\n%s", command, text, err, took, output)
			return
		}
		p.t.Logf("%s\nfails, and is tried again: %v\n%s", command, err, output)
	}
}

// prepared runs a command after what must have been done before it.
func (p *pages) prepared(dir string, command docs.Command, text string, objects docs.Objects) (string, error) {
	for _, b := range before {
		if match := b.command.FindStringSubmatchIndex(text); match != nil {
			if output, err := p.bash(dir, p.Plugin.ShootKubeconfig, objects, string(b.command.ExpandString(nil, b.do, text, match))); err != nil {
				return output, fmt.Errorf("it cannot be prepared: %w", err)
			}
		}
	}
	return p.bash(dir, p.kubeconfig(command), objects, text)
}

// kubeconfig returns that of whoever reads the page.
func (p *pages) kubeconfig(command docs.Command) string {
	isPlugin := strings.HasPrefix(command.Text, "kubectl preserve ")
	if strings.HasPrefix(command.Page, "docs/operations/") && !isPlugin || strings.Contains(command.Text, "-n $NAMESPACE") {
		return p.Plugin.SeedKubeconfig
	}
	return p.Plugin.ShootKubeconfig
}

// manifest returns the first manifest of a page.
func (p *pages) manifest(page string, objects docs.Objects) string {
	content, err := os.ReadFile(filepath.Join("../..", page))
	p.Expect(err).NotTo(HaveOccurred())
	blocks, err := docs.Blocks(page, string(content))
	p.Expect(err).NotTo(HaveOccurred())
	for _, block := range blocks {
		if block.Language == "yaml" && strings.HasPrefix(block.Lines[0], "apiVersion:") {
			text, err := objects.Fill(docs.Command{Page: page, Line: block.Line, Text: strings.Join(block.Lines, "\n")})
			p.Expect(err).NotTo(HaveOccurred())
			return text
		}
	}
	return ""
}

// does runs what must succeed, with the kubeconfig of the shoot.
func (p *pages) does(text string) {
	p.t.Helper()
	output, err := p.bash(p.t.TempDir(), p.Plugin.ShootKubeconfig, p.objects(p.failed), text)
	p.Expect(err).NotTo(HaveOccurred(), "%s\n%s", text, output)
}

// bash runs a command in a terminal, on which somebody confirms what it asks. Where grep finds nothing, it succeeds.
func (p *pages) bash(dir, kubeconfig string, objects docs.Objects, text string) (string, error) {
	links, err := filepath.Glob(filepath.Join(p.work, "*"))
	if err != nil {
		return "", err
	}
	for _, link := range append(links, filepath.Join(p.work, ".landscape")) {
		if err := os.Symlink(link, filepath.Join(dir, filepath.Base(link))); err != nil && !os.IsExist(err) {
			return "", err
		}
	}
	watches := endless.MatchString(text) && !strings.Contains(text, "--until")
	limit := longestCommand
	if watches {
		limit = watched
	}
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", "set -euo pipefail; grep() { command grep \"$@\" || [[ $? == 1 ]]; }\n"+text)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // all of it: a terminal makes it a group
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "PATH="+p.tools+":"+p.landscape.Directory.Binaries()+":"+os.Getenv("PATH"), "KUBECONFIG="+kubeconfig, "NO_COLOR=1", "TERM=xterm")
	for name, value := range objects.Variables() {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	screen, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 50, Cols: 400})
	if err != nil {
		return "", err
	}
	defer screen.Close()
	if _, err := io.WriteString(screen, "y\n"); err != nil {
		return "", err
	}
	var output bytes.Buffer
	_, _ = io.Copy(&output, screen) // Linux answers EIO when the other side is closed
	err = cmd.Wait()
	switch {
	case watches && ctx.Err() != nil:
		err = nil
	case ctx.Err() != nil:
		err = fmt.Errorf("it did not end within %s", limit)
	}
	return output.String(), err
}
