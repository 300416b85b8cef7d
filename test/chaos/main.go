// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Chaos brings the local landscape up, lets things happen to it at random, and says whether the rules were kept. What it
// does follows from a seed, which it prints: with the same seed the same things happen at the same times.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/hosts"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed"
)

//go:embed shoot.yaml
var shootManifest []byte

func main() { landscape.Main("chaos run", run) }

// options are those of the environment.
type options struct {
	generation string
	length     time.Duration
	seed       uint64
}

// readOptions returns an error that names the variable, its value and what is valid.
func readOptions(getenv func(string) string) (options, error) {
	o := options{generation: landscape.DefaultMCM, length: 10 * time.Minute, seed: rand.Uint64N(1_000_000)} // #nosec G404 -- not for secrets
	if value := getenv("MCM"); value != "" {
		o.generation = value
	}
	if value := getenv("CHAOS_MINUTES"); value != "" {
		minutes, err := strconv.ParseUint(value, 10, 16)
		if err != nil || minutes == 0 {
			return o, fmt.Errorf("CHAOS_MINUTES=%q must be a positive number of minutes", value)
		}
		o.length = time.Duration(minutes) * time.Minute // #nosec G115 -- of 16 bits
	}
	if value := getenv("SEED"); value != "" {
		var err error
		if o.seed, err = strconv.ParseUint(value, 10, 64); err != nil {
			return o, fmt.Errorf("SEED=%q must be a number that is not negative", value)
		}
	}
	return o, landscape.ValidateMCM(o.generation)
}

func run(ctx context.Context) error {
	o, err := readOptions(os.Getenv)
	if err != nil {
		return err
	}
	shoot, err := seed.DecodeShoot(shootManifest)
	if err != nil {
		return err
	}
	landscapeOptions := landscape.Options{Dir: landscape.DefaultDir, MCM: o.generation, Hosts: hosts.BareMetalHost, Out: os.Stdout, Shoot: shoot}
	return landscape.Run(ctx, landscapeOptions, func(ctx context.Context, l *landscape.Landscape) error {
		c, err := newChaos(l, shoot.Name, os.Stdout)
		if err != nil {
			return err
		}
		again := fmt.Sprintf("make chaos MCM=%s CHAOS_MINUTES=%d SEED=%d", o.generation, int(o.length.Minutes()), o.seed)
		fmt.Printf("Once more: %s\n\n", again)
		if err := c.run(ctx, schedule(o.seed, o.length), o.length); err != nil {
			return fmt.Errorf("%w, once more: %s", err, again)
		}
		return nil
	})
}
