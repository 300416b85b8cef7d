// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package providerconfig_test

import (
	"fmt"
	"runtime"
	"testing"
	"unicode/utf8"

	apimachineryruntime "k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/providerconfig"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/share"
	"github.com/gardener/gardener-extension-machine-preservation/test/hostile"
)

// maxMessage is what ten errors take at most that show a long path, a long value and many names of pools.
const maxMessage = 16 << 10

// hostilePools are more worker pools than a landscape has for a Shoot.
var hostilePools = func() []share.Pool {
	pools := make([]share.Pool, 100)
	for i := range pools {
		pools[i] = share.Pool{Name: fmt.Sprintf("worker-%d", i), Maximum: 3}
	}
	return pools
}()

func readHostile(config []byte) (*preservation.MachinePreservationConfig, error) {
	return providerconfig.ReadProviderConfig(&apimachineryruntime.RawExtension{Raw: config}, hostilePools, field.NewPath("spec", "providerConfig"))
}

// allocated returns how many bytes are allocated to refuse a configuration and to say why.
func allocated(config string) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := readHostile([]byte(config)); err != nil {
		_ = err.Error()
	}
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func countErrors(err error) int {
	return len(utilerrors.Flatten(utilerrors.NewAggregate([]error{err})).Errors())
}

func FuzzReadProviderConfig(f *testing.F) {
	for _, attack := range hostile.Configs {
		f.Add([]byte(attack(1 << 10)))
	}
	for _, fields := range []string{
		"",
		`"workers":null,"machineControllerManager":null`,
		`"machineControllerManager":{"autoPreserveFailedMax":1,"machinePreserveTimeout":"72h","forceDeletePodsWithVolumes":true,"preferNewFailures":true}`,
		`"workers":[{"name":"worker-1","machineControllerManager":{"autoPreserveFailedMax":2,"machinePreserveTimeout":"10s"}},{"name":"worker-2"}]`,
		`"drainStrategies":{"disabled":true,"timeout":"1h","ignoredNamespacePatterns":["a|b","(","a{999}"]},"drainConditions":true`,
		`"machineControllerManager":{"autoPreserveFailedMax":1e3,"machinePreserveTimeout":"9999999h"}`,
	} {
		f.Add([]byte(hostile.Config(fields)))
	}
	for _, document := range []string{"", "{", "null", "[]", `""`, "1e400", "&a [*a]", "\x00"} {
		f.Add([]byte(document))
	}

	f.Fuzz(func(t *testing.T, data []byte) {
		config, err := readHostile(data)
		switch {
		case err == nil:
			if len(config.Workers) > len(hostilePools) {
				t.Errorf("%d workers for %d pools", len(config.Workers), len(hostilePools))
			}
			for _, pool := range hostilePools {
				settings := share.SettingsFor(pool, config, nil)
				if settings.AutoPreserveFailedMax < 0 || settings.AutoPreserveFailedMax > pool.Maximum || settings.MachinePreserveTimeout < 0 {
					t.Errorf("pool %q gets %+v", pool.Name, settings)
				}
			}
		case config != nil:
			t.Error("a configuration beside an error")
		default:
			message := err.Error()
			if number := countErrors(err); number > 11 || len(message) > maxMessage || !utf8.ValidString(message) {
				t.Errorf("%d errors in %d bytes: %.1000q", number, len(message), message)
			}
		}
		if bytes := allocated(string(data)); bytes > 1<<20+uint64(len(data))*256 {
			t.Errorf("%d bytes allocated for %d", bytes, len(data))
		}
	})
}
