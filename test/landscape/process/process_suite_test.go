// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package process_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/process"
)

// parentVariable makes the test binary a process that starts a child, prints its id, and does nothing more.
const parentVariable = "LANDSCAPE_PROCESS_TEST_PARENT"

func TestMain(m *testing.M) {
	if dir, isParent := os.LookupEnv(parentVariable); isParent {
		child, err := process.Start(process.Spec{Name: "child", Path: "sleep", Args: []string{"60"}, LogFile: filepath.Join(dir, "child.log")})
		if err != nil {
			panic(err)
		}
		fmt.Println(child.PID())
		<-child.Done()
		return
	}
	os.Exit(m.Run())
}

func TestProcess(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Test Landscape Process Suite")
}
