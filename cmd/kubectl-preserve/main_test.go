// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain has the test's own binary be the plugin where a test begins it as that.
func TestMain(m *testing.M) {
	if os.Getenv("BE_KUBECTL_PRESERVE") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func begun(t *testing.T, args ...string) (*exec.Cmd, *strings.Builder) {
	t.Helper()
	said := &strings.Builder{}
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "BE_KUBECTL_PRESERVE=yes")
	cmd.Stderr = said
	return cmd, said
}

func TestErrorsAreOnesThatTerminalsDoNotObey(t *testing.T) {
	cmd, said := begun(t, "list", "--from", "a\x1b[31m\nb")
	if err := cmd.Run(); err == nil || !strings.Contains(said.String(), "Error: --from=a[31m\nb: ") {
		t.Errorf("it says %q, and ends with %v", said, err)
	}
}

func TestSecondInterruptKillsWhatDoesNotEnd(t *testing.T) {
	// A plugin for credentials does not know that it is waited for no longer.
	folder := t.TempDir()
	asked, kubeconfig := filepath.Join(folder, "asked"), filepath.Join(folder, "kubeconfig")
	if err := os.WriteFile(kubeconfig, fmt.Appendf(nil, `
current-context: x
contexts: [{name: x, context: {cluster: x, user: x}}]
clusters: [{name: x, cluster: {server: "https://127.0.0.1:1"}}]
users:
- name: x
  user:
    exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: sh, args: [-c, "touch %s; exec sleep 5"]}
`, asked), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, said := begun(t, "list", "--kubeconfig", kubeconfig)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err := <-ended:
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT {
				t.Errorf("it ends with %v, and says %q", err, said)
			}
			return
		case <-time.After(50 * time.Millisecond):
			if _, err := os.Stat(asked); err == nil {
				_ = cmd.Process.Signal(os.Interrupt)
			}
		}
	}
}
