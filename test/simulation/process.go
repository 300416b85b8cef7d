// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// latency is how long a request takes, and as long its answer, and a change until those see it who watch. Nothing is done in
// no time: a process that writes again and again lets the time pass.
const latency = 5 * time.Millisecond

var (
	errDead = errors.New("the process has been killed")
	errAway = errors.New("connect: connection refused")
	errLost = errors.New("read: connection reset by peer")
)

// Process is a program that can be killed and started again, and the faults of its connections.
type Process struct {
	Name string

	// ctx is done when the world ends.
	ctx   context.Context
	run   func(context.Context, *Life) error
	mutex sync.Mutex
	life  *Life
	// links are by the names of the API servers, and outlive what uses them.
	links map[string]*link
	// fault is what happens at one of the next writes, onFault is called when it does.
	fault   *WriteFault
	onFault func(*WriteFault)
	skipped int
	// onEnd is called with the error of a process that ends by itself.
	onEnd func(error)
}

// WriteFault is what happens at a write.
type WriteFault struct {
	// Skip is how many writes are made before.
	Skip int
	// Applied says that the write is made although no answer comes.
	Applied bool
	// Kill says that the process is killed, and starts again after its downtime. Else only the write fails.
	Kill     bool
	Downtime time.Duration
	// Code is what the write is answered with if it is neither applied nor kills; 0 for a connection that breaks.
	Code int
	// Late is for how long the write is on its way, if it is not zero. Then it is made, whoever still waits for it.
	Late time.Duration
}

// Life is a process from its start to its end.
type Life struct {
	*Process

	// ctx is done when the process is killed. Nothing that it does from then on has an effect.
	ctx  context.Context
	kill context.CancelFunc
}

// Start starts the process if it does not run.
func (p *Process) Start() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.life != nil || p.ctx.Err() != nil {
		return
	}
	life := &Life{Process: p}
	life.ctx, life.kill = context.WithCancel(p.ctx)
	p.life = life
	go func() {
		// A process that does not come up, as an API server is away, is started again.
		if err := p.run(life.ctx, life); err != nil && life.ctx.Err() == nil {
			p.onEnd(err)
			p.Restart(10 * time.Second)
		}
	}()
}

// Kill ends the process at once.
func (p *Process) Kill() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.life != nil {
		p.life.kill()
		p.life = nil
	}
}

// Restart kills the process, and starts it again after some time.
func (p *Process) Restart(downtime time.Duration) {
	p.Kill()
	time.AfterFunc(downtime, p.Start)
}

// FailWrite has something happen at one of the next writes; nil takes that back.
func (p *Process) FailWrite(fault *WriteFault) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.fault, p.skipped = fault, 0
}

// takeFault returns what happens at this write, nil for nothing.
func (p *Process) takeFault() *WriteFault {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.fault == nil {
		return nil
	}
	if p.skipped < p.fault.Skip {
		p.skipped++
		return nil
	}
	fault := p.fault
	p.fault = nil
	p.onFault(fault)
	return fault
}

// config returns the configuration of a client of an API server.
func (l *Life) config(server string) *rest.Config {
	config := &rest.Config{Host: "http://" + server, QPS: 100, Burst: 200, Transport: connection{l, l.links[server]}}
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	return config
}

// link is how a process reaches an API server.
type link struct {
	server *APIServer
	mutex  sync.Mutex
	// cut is closed while the server cannot be reached, and when it begins to be like that.
	cut chan struct{}
	// hangs says that requests are not refused while the server cannot be reached, but wait.
	away, hangs bool
	// back is closed when it can be reached again.
	back chan struct{}
	lag  time.Duration
	// oldest is the version from which on the server remembers what has happened.
	oldest int
	// denied are the names of objects that cannot be written to.
	denied map[string]bool
	// sent counts the requests by what they are about.
	sent map[string]int
}

func newLink(server *APIServer) *link {
	return &link{server: server, cut: make(chan struct{}), back: make(chan struct{}), lag: latency, denied: map[string]bool{}, sent: map[string]int{}}
}

// Cut makes the server unreachable; requests hang, or are refused.
func (l *link) Cut(hangs bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.hangs = hangs; !l.away {
		l.away, l.back = true, make(chan struct{})
		close(l.cut)
	}
}

// Mend makes it reachable, without lag.
func (l *link) Mend() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.lag = latency; l.away {
		l.away, l.cut = false, make(chan struct{})
		close(l.back)
	}
}

// Forget ends all watches, and lets none begin at a version that was read before.
func (l *link) Forget() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.oldest = l.server.Version(); !l.away {
		close(l.cut)
		l.cut = make(chan struct{})
	}
}

// remembers says that a watch can begin at a version.
func (l *link) remembers(version string) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	number, err := strconv.Atoi(version)
	return err != nil || number >= l.oldest
}

// Lag has watches lag behind.
func (l *link) Lag(d time.Duration) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.lag = d
}

// Deny has all writes to an object denied, or not any more.
func (l *link) Deny(name string, denied bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.denied[name] = denied
}

func (l *link) denies(path string) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	k, _, _ := parsePath(path)
	return l.denied[k.name]
}

func (l *link) lags() time.Duration {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.lag
}

func (l *link) isAway() bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.away
}

// reach waits as long as requests hang, and returns what is closed when the server cannot be reached any more.
func (l *link) reach(ctx context.Context) (cut <-chan struct{}, err error) {
	for {
		l.mutex.Lock()
		away, hangs, cut, back := l.away, l.hangs, l.cut, l.back
		l.mutex.Unlock()
		switch {
		case !away:
			return cut, nil
		case !hangs:
			return nil, errAway
		}
		select {
		case <-back:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// connection is a link as one life of a process uses it.
type connection struct {
	life *Life
	link *link
}

// RoundTrip implements http.RoundTripper.
func (c connection) RoundTrip(req *http.Request) (*http.Response, error) {
	// A request ends with the process, whoever waits for it.
	ctx, cancel := context.WithCancel(req.Context())
	stop := context.AfterFunc(c.life.ctx, cancel)
	response, err := c.roundTrip(req.WithContext(ctx))
	if err != nil || req.URL.Query().Get("watch") == "" {
		stop()
		cancel()
	}
	return response, err
}

func (c connection) roundTrip(req *http.Request) (*http.Response, error) {
	if isEvent(req.URL.Path) {
		// It takes no time: a broadcaster of Events holds a mutex meanwhile, and the clock does not move on while somebody waits for that.
		switch {
		case c.life.ctx.Err() != nil:
			return nil, errDead
		case c.link.isAway():
			return nil, errAway
		}
		return c.link.server.Serve(c.life.Name, req, nil, nil), nil
	}
	if err := c.travel(req); err != nil {
		return nil, err
	}
	cut, err := c.link.reach(req.Context())
	if err != nil {
		return nil, err
	}
	if req.Method == http.MethodGet {
		if query := req.URL.Query(); query.Get("watch") != "" && query.Get("sendInitialEvents") == "" && !c.link.remembers(query.Get("resourceVersion")) {
			return c.answer(req, refuse(http.StatusGone))
		}
		return c.answer(req, c.link.server.Serve(c.life.Name, req, c.link.lags, cut))
	}

	if c.link.denies(req.URL.Path) {
		return c.answer(req, refuse(http.StatusForbidden))
	}
	fault := c.life.takeFault()
	if fault != nil && fault.Late > 0 {
		return c.late(req, fault.Late)
	}
	if fault == nil || fault.Applied {
		response := c.link.server.Serve(c.life.Name, req, nil, nil)
		if fault == nil {
			return c.answer(req, response)
		}
	}
	switch {
	case fault.Kill:
		c.life.Restart(fault.Downtime)
		return nil, errDead
	case fault.Code != 0 && !fault.Applied:
		return c.answer(req, refuse(fault.Code))
	default:
		return nil, errLost
	}
}

// late makes a write after some time. It does not know whether somebody has given up, or was killed, by then.
func (c connection) late(req *http.Request, after time.Duration) (*http.Response, error) {
	sent, err := copyOf(req)
	if err != nil {
		return nil, err
	}
	made := make(chan *http.Response, 1)
	time.AfterFunc(after, func() { made <- c.link.server.Serve(c.life.Name, sent, nil, nil) })
	select {
	case response := <-made:
		return c.answer(req, response)
	case <-req.Context().Done():
		return nil, cmp.Or(c.life.ctx.Err(), req.Context().Err())
	}
}

// copyOf returns the request, which whoever has sent it cannot cancel any more.
func copyOf(req *http.Request) (*http.Request, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	sent := req.Clone(context.WithoutCancel(req.Context()))
	sent.Body = io.NopCloser(bytes.NewReader(body))
	return sent, nil
}

// answer returns a response if there still is somebody to receive it.
func (c connection) answer(req *http.Request, response *http.Response) (*http.Response, error) {
	if err := c.travel(req); err != nil {
		return nil, err
	}
	return response, nil
}

// takes returns how long a request, or an answer, takes. Hardly two take the same time, so that what would happen at the same
// moment happens in the same order each time.
func (l *link) takes(process, what string) time.Duration {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.sent[what]++
	hash := fnv.New32a()
	fmt.Fprint(hash, process, l.server.Name, what, l.sent[what])
	return latency + time.Duration(hash.Sum32()%1e6)*time.Nanosecond
}

// travel takes the time that a request or an answer needs.
func (c connection) travel(req *http.Request) error {
	timer := time.NewTimer(c.link.takes(c.life.Name, req.Method+req.URL.Path))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-req.Context().Done():
	}
	if c.life.ctx.Err() != nil {
		return errDead
	}
	return req.Context().Err()
}
