// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/creack/pty"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Plugin is kubectl preserve, and what it is given. Kubelets let their logs be queried, and the Shoot has them stored.
type Plugin struct {
	// Binary is its path.
	Binary string
	// SeedKubeconfig and ShootKubeconfig are paths as well.
	SeedKubeconfig, ShootKubeconfig string
}

func needsPlugin(e *Environment) string {
	if e.Plugin == nil || e.Inject == nil {
		return "kubectl preserve is tried where kubelets can be made to answer and to fall silent"
	}
	return ""
}

// longestAnswer bounds all commands that do not wait for the controller: evidence is gathered within a minute.
const longestAnswer = time.Minute

// person runs the plugin in a directory of its own.
type person struct {
	*Pool
	dir   string
	flags []string
}

// as returns somebody who runs the plugin with more flags.
func (u person) as(flags ...string) person {
	u.flags = append(u.flags[:len(u.flags):len(u.flags)], flags...)
	return u
}

func (u person) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(u.ctx, u.Plugin.Binary, append(args, u.flags...)...)
	cmd.Dir, cmd.Env = u.dir, append(os.Environ(), "TERM=xterm", "KUBECONFIG="+u.Plugin.ShootKubeconfig)
	return cmd
}

// terminal runs a command in a terminal, in which the answer is typed, and returns what is there at its end, and the exit
// status.
func (u person) terminal(answer string, args ...string) (string, int) {
	u.t.Helper()
	cmd, started := u.command(args...), time.Now()
	screen, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 50, Cols: 400})
	u.Expect(err).NotTo(HaveOccurred())
	defer screen.Close()
	_, err = io.WriteString(screen, answer)
	u.Expect(err).NotTo(HaveOccurred())
	var shown bytes.Buffer
	_, _ = io.Copy(&shown, screen) // Linux answers EIO when the other side is closed
	status := exitStatus(cmd.Wait())
	text := strings.ReplaceAll(shown.String(), "\r\n", "\n")
	u.t.Logf("kubectl preserve %s (status %d, %s)\n%s", strings.Join(cmd.Args[1:], " "), status, time.Since(started).Round(time.Millisecond), text)
	// What all outputs have in common: each thing that is known has a name, and each time was read.
	u.Expect(text).NotTo(Or(ContainSubstring("of another version than this"), ContainSubstring("0001-01-01"), ContainSubstring("no kind is registered")))
	return text, status
}

func exitStatus(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}

// does runs a command that succeeds.
func (u person) does(args ...string) string {
	u.t.Helper()
	text, status := u.terminal("", args...)
	u.Expect(status).To(BeZero(), text)
	return text
}

// follows runs a command that goes on, with no terminal, and returns what waits for its end, then for its output and its exit
// status.
func (u person) follows(args ...string) func() (string, int) {
	u.t.Helper()
	var out bytes.Buffer
	cmd := u.command(args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	u.Expect(cmd.Start()).To(Succeed())
	return func() (string, int) {
		u.t.Helper()
		status := exitStatus(cmd.Wait())
		u.t.Logf("kubectl preserve %s (status %d)\n%s", strings.Join(args, " "), status, out.String())
		return out.String(), status
	}
}

// gathers returns the files of a bundle of evidence.
func (u person) gathers(name string, flags ...string) (file string, files map[string]string) {
	u.t.Helper()
	file = filepath.Join(u.dir, fmt.Sprintf("%d.tar.gz", time.Now().UnixNano()))
	started := time.Now()
	u.does(append([]string{"evidence", name, "-o", file}, flags...)...)
	u.Expect(time.Since(started)).To(BeNumerically("<", longestAnswer))
	packed, err := os.ReadFile(file)
	u.Expect(err).NotTo(HaveOccurred())
	u.Expect(len(packed)).To(BeNumerically("<", 8<<20))
	unzipped, err := gzip.NewReader(bytes.NewReader(packed))
	u.Expect(err).NotTo(HaveOccurred())
	files = map[string]string{}
	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		u.Expect(err).NotTo(HaveOccurred())
		content, err := io.ReadAll(archive)
		u.Expect(err).NotTo(HaveOccurred())
		u.Expect(string(content)).NotTo(Or(ContainSubstring("hunter2"), ContainSubstring("swordfish")), header.Name)
		files[header.Name] = string(content)
	}
	u.t.Logf("%d files, %d bytes\n%s", len(files), len(packed), files["index.md"])
	return file, files
}

// kubectlPreserve: who has the kubeconfig of the shoot, of the seed, too, or the rights of a viewer of nodes asks for machines,
// extends, watches, explains, gathers and lets go.
func kubectlPreserve(p *Pool) {
	machines := p.running(2)
	well, broken := machines[0], machines[1]
	nodes := []string{p.node(p, well).Name, p.node(p, broken).Name}
	owner := person{Pool: p, dir: p.t.TempDir()}
	operator := owner.as("--seed-kubeconfig", p.Plugin.SeedKubeconfig, "--seed-namespace", p.Namespace)
	viewer := owner.as("--as", p.viewer())
	_, app := p.workload(broken)
	p.secretive(well)

	// A machine is requested, and then extended.
	text := owner.does("now", nodes[0], "--for", "6h", "--wait")
	p.Expect(text).To(MatchRegexp(`Its machine is preserved until \S+ because it was requested\. \[T1\]`))
	until := p.keptUntil(text)
	p.Expect(until).To(BeTemporally("~", time.Now().Add(6*time.Hour), time.Minute))
	owner.does("extend", nodes[0], "--for", "1h")
	p.Expect(p.preserved(well, runningPreserved, "now")).To(BeTemporally("~", until.Add(time.Hour), 30*time.Second))
	refused, status := viewer.terminal("", "release", nodes[0])
	p.Expect(status).To(Equal(1))
	p.Expect(refused).To(ContainSubstring(`cannot patch resource "nodes"`))

	// One fails while somebody waits for that.
	held := owner.follows("list", nodes[1], "-w", "--until", "held", "--timeout", "5m")
	p.fail(broken, KubeletDead)
	shown, status := held()
	p.Expect(status).To(BeZero())
	p.Expect(shown).To(MatchRegexp(`^POOL +ZONE +NODE(?s).*` + nodes[1] + ` +Failed:Preserved`))
	expiry := p.preserved(broken, failedPreserved, "auto")
	p.eventually(func(g Gomega) { g.Expect(p.node(g, broken)).To(tainted()) })

	zone := p.node(p, broken).Labels[corev1.LabelTopologyZone]
	row := func(cells ...string) string { return `(?m)^(\x1b\[\d+m)?` + strings.Join(cells, ` +`) }
	p.Expect(owner.does("list")).To(And(ContainSubstring("\x1b[1mPOOL "),
		MatchRegexp(row(p.name, zone, nodes[0], "Running:Preserved", "now", "-", `6h\d+m`, "shoot user")),
		MatchRegexp(row(p.name, zone, nodes[1], "Failed:Preserved", "auto")),
		MatchRegexp(row(p.name, zone, `\?`, "1", `\?`)), ContainSubstring("Only the seed knows how many places there are")))
	p.Expect(operator.does("list", "-o", "wide")).To(And(
		MatchRegexp(row(p.name, zone, nodes[1], "Failed:Preserved", "auto", `\w+`, `\S+`, "nobody", regexp.QuoteMeta(expiry.UTC().Format(time.RFC3339)), broken.Name)),
		MatchRegexp(row(p.name, zone, "1", "1", "0"))))
	p.Expect(viewer.does("list", nodes[1])).To(MatchRegexp(row(p.name, zone, nodes[1], "Failed:Preserved")))

	at := expiry.UTC().Format(time.RFC3339)
	p.Expect(owner.does("explain", nodes[1])).To(And(ContainSubstring("because the machine failed (cause auto). [T5]"), ContainSubstring("It is preserved until "+at), ContainSubstring("What only the seed knows:")))
	p.Expect(operator.does("explain", nodes[1])).To(And(ContainSubstring("Machine "+broken.Name+" is preserved. It is Failed:Preserved."),
		ContainSubstring("has 1 place. Machines that take one: "+broken.Name+". [P1]"), ContainSubstring("It is preserved until "+at), Not(ContainSubstring("What is not known"))))
	p.Expect(viewer.does("explain", nodes[1])).To(And(ContainSubstring("Its node has taint"), ContainSubstring("The Events of the node: ")))
	p.Expect(operator.does("drain-forecast", nodes[1])).To(ContainSubstring("What the drain of the failed machine"))

	// Evidence of a machine whose kubelet is dead, for each of them, and what can be read of it without any cluster.
	_, files := viewer.gathers(nodes[1])
	p.Expect(files["index.md"]).To(And(ContainSubstring("Condition Preserved is True"), ContainSubstring("- pods of the node: pods is forbidden"), ContainSubstring("needs access to the seed")))
	p.Expect(files).NotTo(HaveKey(HavePrefix("seed/")))
	_, files = owner.gathers(nodes[1])
	p.Expect(files["index.md"]).To(And(ContainSubstring("**tainted**"), ContainSubstring("**preserved**"), ContainSubstring("kubelet"), ContainSubstring(app.Name)))
	bundle, files := operator.gathers(nodes[1])
	p.Expect(files["index.md"]).To(And(ContainSubstring("- The machine is Failed:Preserved."), ContainSubstring(`(cause "auto").`), ContainSubstring("**expires**")))
	p.Expect(files["index.md"]).To(MatchRegexp(`(?s)What could not be gathered.*kubelet.*What was redacted`))
	p.Expect(files).To(And(HaveKey("seed/machines.json"), HaveKey("shoot/pods.json"), HaveKey("manifest.json"), Not(HaveKey(HavePrefix("node/")))))
	stranger := owner.as("--kubeconfig", os.DevNull)
	p.Expect(stranger.does("explain", nodes[1], "--from", bundle)).To(ContainSubstring("Machine " + broken.Name + " is preserved. It is Failed:Preserved."))
	p.Expect(stranger.does("list", "--from", bundle)).To(MatchRegexp(row(p.name, zone, nodes[1], "Failed:Preserved", "auto")))

	// And of one that answers, with its journal.
	_, files = owner.gathers(nodes[0])
	p.Expect(files).To(And(HaveKeyWithValue("node/configz.json", ContainSubstring("maxPods")), HaveKey("node/stats-summary.json"),
		HaveKeyWithValue("node/logs/kubelet.log", And(ContainSubstring(p.node(p, well).Status.NodeInfo.BootID), ContainSubstring("token=[redacted]")))))
	p.Expect(files["index.md"]).To(MatchRegexp(`(?s)Condition Ready is True.*What was redacted.*values of environment variables`))

	// Where many machines fail at the same time, evidence of one after the other is stored.
	p.eventually(func(g Gomega) {
		text, _ := operator.terminal("", "evidence", "list")
		g.Expect(text).To(MatchRegexp(row(broken.Name, nodes[1])))
	})
	p.eventually(func(g Gomega) {
		text, _ := owner.terminal("", "evidence", "list")
		g.Expect(text).To(MatchRegexp(row(broken.Name, nodes[1])))
	})
	text, status = viewer.terminal("", "evidence", "list")
	p.Expect(status).To(Equal(1))
	p.Expect(text).To(ContainSubstring("ask its owner to bind you to Role evidence-viewer in namespace machine-preservation-evidence"))

	// It is released after a confirmation, while somebody waits for that.
	released := owner.follows("list", nodes[1], "-w", "--until", "released", "--timeout", "5m")
	text, status = owner.terminal("n\n", "release", nodes[1])
	p.Expect(status).To(Equal(1))
	p.Expect(text).To(And(ContainSubstring("it is terminated with everything on it. Release it? [y/N]"), ContainSubstring("not confirmed, nothing was changed")))
	p.Expect(p.isPreserved(p, broken, failedPreserved, "auto")).To(BeTemporally("==", expiry))
	text = owner.does("release", nodes[1], "--yes", "--wait")
	p.Expect(text).To(MatchRegexp(`node/\S+ is (no longer preserved|gone)\n$`))
	shown, status = released()
	p.Expect(status).To(BeZero())
	p.Expect(shown).To(MatchRegexp(row(p.name, zone, nodes[1], "Released")))
	p.gone(broken)

	// Whoever may view the shoot is told why it failed, now that it is gone.
	p.eventually(func(g Gomega) {
		text, _ := owner.terminal("", "why", nodes[1])
		g.Expect(text).To(And(ContainSubstring("Machine "+broken.Name), ContainSubstring("The first bad condition: Ready was Unknown (NodeStatusUnknown)"),
			ContainSubstring("It was replaced at "), ContainSubstring("It is gone")))
	})
	p.Expect(owner.does("history", "--pool", p.name)).To(MatchRegexp(row(`\S+`, nodes[1], p.name, `\S+`, "Ready", "auto", "MachineFailed", "Replaced")))

	// What was stored when it failed is still there.
	_, files = operator.gathers(broken.Name, "--stored")
	p.Expect(files["index.md"]).To(And(ContainSubstring("- The machine is Failed:Preserved."), ContainSubstring("**preserved**")))
	p.Expect(files).To(And(HaveKey("seed/machines.json"), HaveKey("shoot/pods.json")))

	text, status = owner.terminal("", "list", nodes[0], "-w", "--until", "released", "--timeout", "2s")
	p.Expect(status).To(Equal(1))
	p.Expect(text).To(ContainSubstring("--timeout=2s has passed, and not all of " + nodes[0] + " are released"))
	p.Expect(operator.does("release", nodes[0], "--wait")).To(HaveSuffix(" is no longer preserved\n"))
	p.ordinary(well)
}

// journal: evidence of a machine whose kubelet answers, which is stored when it fails, has the journal of its node, without credentials.
func journal(p *Pool) {
	machine := p.running(2)[0]
	p.fail(machine, NodeCondition)
	p.preserved(machine, failedPreserved, "auto")
	operator := person{Pool: p, dir: p.t.TempDir()}.as("--seed-kubeconfig", p.Plugin.SeedKubeconfig, "--seed-namespace", p.Namespace)
	p.eventually(func(g Gomega) {
		text, _ := operator.terminal("", "evidence", "list")
		g.Expect(text).To(ContainSubstring(machine.Name))
	})
	p.eventually(func(g Gomega) { // until then there may be what was stored when the machine failed for another scenario
		_, files := operator.gathers(machine.Name, "--stored")
		g.Expect(files).To(HaveKeyWithValue("node/logs/kubelet.log", And(ContainSubstring(p.node(g, machine).Status.NodeInfo.BootID), ContainSubstring("token=[redacted]"))))
		g.Expect(files).To(HaveKeyWithValue("node/logs/kernel.log", ContainSubstring("Linux version")))
	})
}

// keptUntil returns until when the plugin says that a machine is kept.
func (p *Pool) keptUntil(text string) time.Time {
	p.t.Helper()
	match := regexp.MustCompile(`is preserved until (\S+)\n`).FindStringSubmatch(text)
	p.Expect(match).To(HaveLen(2), text)
	until, err := time.Parse(time.RFC3339, match[1])
	p.Expect(err).NotTo(HaveOccurred())
	return until
}

// viewer returns a user of the shoot who may read nodes, and nothing else.
func (p *Pool) viewer() string {
	name := p.scenario + "-viewer"
	p.create(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch"},
	}}})
	p.create(&rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	})
	return name
}

// secretive puts a pod on the machine's node that nobody drains, with passwords where there should be none.
func (p *Pool) secretive(machine *machinev1alpha1.Machine) {
	p.create(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: p.scenario + "-secretive", Namespace: metav1.NamespaceDefault},
		Spec: corev1.PodSpec{
			NodeName: p.node(p, machine).Name,
			Containers: []corev1.Container{{
				Name: "pause", Image: "registry.k8s.io/pause:3.10",
				Env:  []corev1.EnvVar{{Name: "PASSWORD", Value: "hunter2"}},
				Args: []string{"--password=swordfish"},
			}},
		},
	})
}
