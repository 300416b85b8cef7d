// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/panics"
)

const (
	// maxLog is how many bytes of one log are kept, its last ones, where nobody wants less.
	maxLog = 4 << 20
	// maxConfigz is how many bytes a kubelet's configuration has at most. One has about 10 KiB. Indented, which is how it is kept, it may have
	// many times as many.
	maxConfigz = 256 << 10
	// maxStream is how many bytes of one log are read at most.
	maxStream = 256 << 20
	// maxLogLine is how many bytes of one line are kept.
	maxLogLine = 16 << 10
	// nodeLogs is where in a bundle the logs of a node are.
	nodeLogs = "node/logs/"
	// logLines is how many lines of such a log are asked for.
	logLines = 20000
)

// service is one of a node whose log is gathered. Others, above all what cloud-init says, may tell credentials.
type service struct{ name, log string }

var services = []service{
	{"kubelet", "kubelet"}, {"containerd", "containerd"}, {"gardener-node-agent", "gardener-node-agent"}, {v1alpha1.KernelLogService, "kernel"},
}

// logFiles are the files in /var/log of a node that are gathered where they exist. Others have what all services say.
var logFiles = []string{"kern.log", "dmesg"}

// tail keeps the last whole lines that it is given, within a number of bytes, and maxKey bytes before them: they may have begun what
// the first of them are the rest of.
type tail struct {
	lines [][]byte
	size  int
	max   int
	cut   int64
}

func (t *tail) add(line []byte) {
	t.lines = append(t.lines, bytes.Clone(line))
	t.size += len(line)
	for t.size > t.max+maxKey {
		t.size -= len(t.lines[0])
		t.cut += int64(len(t.lines[0]))
		t.lines = t.lines[1:]
	}
}

// lead is how many bytes there are before the lines that are kept.
func (t *tail) lead() int {
	lead := 0
	for _, line := range t.lines {
		if t.size-lead <= t.max {
			break
		}
		lead += len(line)
	}
	return lead
}

// readLog returns the last lines of a log that keep says are of interest, after a lead of so many bytes, and how many bytes of such
// lines came before them, with the lead. What was read before an error counts.
func readLog(r io.Reader, maxBytes int, keep func([]byte) bool) (data []byte, lead int, cut int64, err error) {
	var (
		reader = bufio.NewReaderSize(io.LimitReader(r, maxStream), maxLogLine)
		kept   = tail{max: maxBytes}
	)
	for {
		part, err := reader.ReadSlice('\n')
		// What is too long for a line goes on as the next one's beginning, which is not read.
		whole := bytes.Clone(part)
		if errors.Is(err, bufio.ErrBufferFull) {
			whole = whole[:wholeWords(string(whole))]
		}
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = reader.ReadSlice('\n')
		}
		if len(whole) > 0 && (keep == nil || keep(whole)) {
			kept.add(append(bytes.TrimSuffix(whole, []byte("\n")), '\n'))
		}
		if errors.Is(err, io.EOF) {
			err = nil
		} else if err == nil {
			continue
		}
		lead := kept.lead()
		return bytes.Join(kept.lines, nil), lead, kept.cut + int64(lead), err
	}
}

// naming returns what says whether a line names one of several machines or nodes, and not one whose name only begins like it.
func naming(names ...string) func([]byte) bool {
	var quoted []string
	for _, name := range names {
		if name != "" {
			quoted = append(quoted, regexp.QuoteMeta(name))
		}
	}
	if len(quoted) == 0 {
		return func([]byte) bool { return false }
	}
	// A dot ends a sentence as well as it goes on with a name: these lines are kept.
	return regexp.MustCompile(`(?:^|[^a-zA-Z0-9-])(?:` + strings.Join(quoted, "|") + `)(?:$|[^a-zA-Z0-9-])`).Match
}

// counter counts the bytes that are read.
type counter struct {
	io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

// streamLog reads a log into the bundle, without what looks like a credential. If last is more than 0, only so many bytes at its end
// were asked for.
func (c *collector) streamLog(ctx context.Context, path, what string, last int64, open func(context.Context) (io.ReadCloser, error), keep func([]byte) bool) error {
	var (
		data []byte
		lead int
		cut  int64
	)
	err := c.call(ctx, logTimeout, func(ctx context.Context) error {
		stream, err := open(ctx)
		if err != nil {
			return err
		}
		defer stream.Close()
		stop := context.AfterFunc(ctx, func() { stream.Close() })
		defer stop()
		counted := &counter{Reader: stream}
		data, lead, cut, err = readLog(counted, c.MaxLog, keep)
		// Nobody says whether there was more. If so, the first lines may be the rest of what was begun before them.
		if asked := last > 0 && (err != nil || counted.n >= last) || bytes.Count(data, []byte("\n")) >= c.lines(); asked && lead == 0 {
			lead = min(len(data), maxKey)
			if i := bytes.IndexByte(data[lead:], '\n'); i >= 0 {
				lead += i + 1
			}
			cut += int64(lead)
		}
		if err != nil && ctx.Err() != nil {
			err = ctx.Err()
		}
		return err
	})
	if len(data) > 0 || cut > 0 {
		c.addLog(path, data, lead, cut, err != nil)
		if err != nil {
			c.note(observed.Thing(what), fmt.Errorf("only its beginning: %w", err))
		}
		return nil
	}
	return err
}

// openNode returns what asks the kubelet.
func (c *collector) openNode(path string, query url.Values, last int64) func(context.Context) (io.ReadCloser, error) {
	return func(ctx context.Context) (io.ReadCloser, error) {
		return c.NodeProxy(ctx, c.bundle.Node, path, query, last)
	}
}

// readNode reads an answer of the kubelet.
func (c *collector) readNode(ctx context.Context, path string, limit int64) ([]byte, error) {
	var data []byte
	err := c.call(ctx, nodeTimeout, func(ctx context.Context) error {
		body, err := c.openNode(path, nil, 0)(ctx)
		if err != nil {
			return err
		}
		defer body.Close()
		stop := context.AfterFunc(ctx, func() { body.Close() })
		defer stop()
		if data, err = io.ReadAll(io.LimitReader(body, limit+1)); err == nil && int64(len(data)) > limit {
			err = tooLargeError{limit}
		}
		return err
	})
	return data, err
}

// ofKubelet asks the kubelet for its configuration, its statistics and its logs. One that does not answer, or is not to be
// asked, is asked once.
func (c *collector) ofKubelet(ctx context.Context) {
	if c.NodeProxy == nil || c.bundle.Node == "" {
		return
	}
	config, err := c.readNode(ctx, "configz", maxConfigz)
	if dead(err) {
		c.note(whatKubelet, err)
		return
	}
	if err == nil {
		c.set(func() { config, err = redactConfigz(config, c.redacted) })
	}
	if err == nil {
		c.addFile("node/configz.json", append(config, '\n'))
	} else {
		c.note("configuration of the kubelet", err)
	}

	stats, err := c.readNode(ctx, "stats/summary", maxLog)
	switch {
	case err != nil:
	case !json.Valid(stats):
		err = errors.New("it is not JSON")
	default:
		err = checkDepth(stats)
	}
	if err == nil {
		c.addFile("node/stats-summary.json", stats)
	} else {
		c.note("statistics of the kubelet", err)
	}
	c.nodeLogs(ctx)
}

// nodeLogs asks the kubelet for logs.
func (c *collector) nodeLogs(ctx context.Context) {
	listing, err := c.readNode(ctx, "logs/", 1<<20)
	if err != nil {
		c.note("logs of the node", err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, nodeLogsTime)
	defer cancel()
	files := filesOf(listing)
	journal := func(of service, boot, path, what string) error {
		query := url.Values{"query": {of.name}, "tailLines": {strconv.Itoa(c.lines())}, "boot": {boot}}
		return c.streamLog(ctx, path, what, 0, refuse(c.openNode("logs/", query, 0)), nil)
	}
	readFile := func(file, path, what string) {
		last := int64(c.MaxLog + maxKey)
		c.note(observed.Thing(what), c.streamLog(ctx, path, what, last, c.openNode("logs/"+file, nil, last), nil))
	}
	var inJournal []service
	for _, of := range services {
		what, path, file := "log of "+of.log, nodeLogs+of.log+".log", of.log+".log"
		err := journal(of, "0", path, what)
		switch {
		case err == nil:
			inJournal = append(inJournal, of)
		case !errors.As(err, new(refusedError)):
			c.note(observed.Thing(what), err)
		case slices.Contains(files, file):
			readFile(file, path, what)
		default:
			c.note(observed.Thing(what), fmt.Errorf("%w, and there is no such file in /var/log", err))
		}
	}
	for _, file := range logFiles {
		if slices.Contains(files, file) {
			readFile(file, nodeLogs+strings.TrimSuffix(file, ".log")+".log", "file /var/log/"+file+" of the node")
		}
	}
	// A node that has not been rebooted has no other boot, and one whose journal is in memory has forgotten it.
	for _, of := range inJournal {
		what := "log of " + of.log + " before the last boot"
		if err := journal(of, "-1", nodeLogs+of.log+"-previous-boot.log", what); !errors.As(err, new(refusedError)) {
			c.note(observed.Thing(what), err)
		}
	}
}

// NodeLogs are logs of a node that were gathered before anybody knew whether they would be needed.
type NodeLogs struct {
	time  time.Time
	files []file
}

// CollectNodeLogs gathers the logs of a node, whose name is that of the sources, and nothing else; nil if there are none to be had.
func CollectNodeLogs(ctx context.Context, sources Sources) *NodeLogs {
	c := newCollector(sources)
	c.bundle.Node = sources.Name
	if err := panics.Catch(ctx, func() error { c.nodeLogs(ctx); return nil }); err != nil {
		return nil
	}
	logs := slices.DeleteFunc(c.bundle.files, func(f file) bool { return !f.log })
	if len(logs) == 0 {
		return nil
	}
	return &NodeLogs{time: c.bundle.Snapshot.Time, files: logs}
}

// takeEarlierLogs takes those of the logs that were gathered earlier of which the whole cannot be had any more.
func (c *collector) takeEarlierLogs() {
	if c.EarlierLogs == nil {
		return
	}
	isWhole := map[string]bool{}
	for _, f := range c.bundle.files {
		isWhole[f.path] = !f.broken
	}
	taken := false
	for _, f := range c.EarlierLogs.files {
		if !isWhole[f.path] {
			taken = true
			f.path = nodeLogs + "earlier/" + strings.TrimPrefix(f.path, nodeLogs)
			c.bundle.files = append(c.bundle.files, f)
			c.redacted.add(redactedCredentials, f.redacted)
		}
	}
	if taken {
		c.note("logs of the node", cutError{fmt.Errorf("those in the folder earlier were gathered at %s", c.EarlierLogs.time.Format(time.RFC3339))})
	}
}

// lines is how many lines of a log are asked for.
func (c *collector) lines() int { return max(1, logLines*c.MaxLog/maxLog) }

// tooLargeError says that a kubelet answered, with more bytes than are read.
type tooLargeError struct{ limit int64 }

func (e tooLargeError) Error() string { return fmt.Sprintf("it is larger than %d bytes", e.limit) }

// dead says that another question is of no use.
func dead(err error) bool {
	if err == nil || errors.As(err, new(tooLargeError)) {
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	code := status.Status().Code
	return code >= http.StatusInternalServerError || code == http.StatusForbidden || code == http.StatusUnauthorized
}

// refusedError is why a kubelet has no such log in its journal.
type refusedError struct{ reason string }

func (e refusedError) Error() string { return e.reason }

// refusal is what a kubelet, or the journalctl that it has started, says in the place of a log. A log begins with a date.
var refusal = regexp.MustCompile(`^\s*((?:-- No entries --|No journal|Data from the specified boot|Specifying boot ID|Failed to |` +
	`options present and query resolved|log not found for |error getting log for |error: journal output|failed to get logging cmd).*)`)

// refuse has what says that there is no log be an error. A kubelet that answers no queries answers with its list of files.
func refuse(open func(context.Context) (io.ReadCloser, error)) func(context.Context) (io.ReadCloser, error) {
	return func(ctx context.Context) (io.ReadCloser, error) {
		body, err := open(ctx)
		if err != nil {
			return nil, err
		}
		reader := bufio.NewReader(body)
		first, _ := reader.Peek(256)
		var refused error
		if strings.HasPrefix(string(first), "<pre>") || strings.HasPrefix(strings.ToLower(string(first)), "<!doctype") {
			refused = refusedError{"the kubelet does not answer queries of logs (enableSystemLogQuery)"}
		} else if match := refusal.FindSubmatch(first); match != nil {
			refused = refusedError{"the journal has none: " + string(match[1])}
		}
		if refused != nil {
			return nil, errors.Join(refused, body.Close())
		}
		return struct {
			io.Reader
			io.Closer
		}{reader, body}, nil
	}
}

var href = regexp.MustCompile(`<a href="([A-Za-z0-9._-]+)">`)

// filesOf returns the files in a list of the kubelet's.
func filesOf(listing []byte) []string {
	var files []string
	for _, match := range href.FindAllSubmatch(listing, -1) {
		files = append(files, string(match[1]))
	}
	return files
}

// seedLogs reads the provider's Pod of the machine with its log, and what machine-controller-manager and the sidecar say of the
// machine.
func (c *collector) seedLogs(ctx context.Context) {
	if c.PodLogs == nil || c.Seed == nil || c.bundle.Snapshot.Seed == nil {
		return
	}
	// Names that only the shoot says are its owner's: they must not choose among the pods and logs of the control plane.
	if c.machine == nil {
		c.note("logs of the seed", errors.New("the seed does not have this machine"))
		return
	}
	mcm := labels.Nothing()
	if c.mcm != nil {
		selector, err := metav1.LabelSelectorAsSelector(c.mcm.Spec.Selector)
		if err == nil {
			mcm = selector
		}
	}
	var pods []corev1.Pod
	if !c.try(ctx, "pods of the control plane", func(ctx context.Context) (err error) {
		pods, err = list(ctx, c.Seed, &corev1.PodList{}, func(l *corev1.PodList) []corev1.Pod { return l.Items }, func(pod *corev1.Pod) bool {
			return mcm.Matches(labels.Set(pod.Labels)) || c.ofMachine(pod)
		}, client.InNamespace(c.SeedNamespace))
		return err
	}) {
		return
	}

	names := naming(c.bundle.Machine, c.bundle.Node)
	var machinePods []corev1.Pod
	for i := range pods {
		pod := &pods[i]
		ofMachine := c.ofMachine(pod)
		if ofMachine {
			machinePods = append(machinePods, *pod)
		}
		for _, status := range pod.Status.ContainerStatuses {
			if !ofMachine && status.Name != containerSidecar && !strings.HasPrefix(status.Name, deploymentMCM) {
				continue
			}
			for _, previous := range []bool{false, true} {
				if previous && status.RestartCount == 0 {
					continue
				}
				options := &corev1.PodLogOptions{Container: status.Name, Previous: previous, Timestamps: true}
				keep, path, what := names, "seed/logs/"+pod.Name+"/"+status.Name, fmt.Sprintf("log of container %s of pod %s", status.Name, pod.Name)
				if ofMachine {
					keep, options.TailLines = nil, new(int64(c.lines()))
				}
				if previous {
					path, what = path+"-previous", what+" before its restart"
				}
				c.note(observed.Thing(what), c.streamLog(ctx, path+".log", what, 0, func(ctx context.Context) (io.ReadCloser, error) {
					return c.PodLogs(ctx, pod.Namespace, pod.Name, options)
				}, keep))
			}
		}
	}
	if !slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return mcm.Matches(labels.Set(pod.Labels)) }) {
		c.note("logs of "+deploymentMCM, errors.New("it has no pods"))
	}
	if len(machinePods) == 0 {
		return
	}
	c.set(func() {
		for i := range machinePods {
			redactPod(&machinePods[i], c.redacted)
		}
	})
	if data, err := encode("v1", "PodList", machinePods); err == nil {
		c.addFile("seed/machine-pods.json", data)
	}
	c.try(ctx, "Events of the machine's pod", func(ctx context.Context) error {
		for i := range machinePods {
			events, err := ReadEvents(ctx, c.Seed, c.SeedNamespace, "Pod", machinePods[i].Name)
			if err != nil {
				return err
			}
			c.set(func() { c.bundle.Snapshot.Seed.Events = append(c.bundle.Snapshot.Seed.Events, events...) })
		}
		return nil
	})
}

// ofMachine says that a pod is the machine: with provider-local, machines are pods of the control plane.
func (c *collector) ofMachine(pod *corev1.Pod) bool {
	return pod.Name == c.machine.Name || pod.Name == "machine-"+c.machine.Name || pod.Labels["machine"] == c.machine.Name
}
