// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Command landscape starts and stops the local landscape.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/binaries"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/hosts"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "Error: %v\n", err)
		stop()
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	dir    string
	mcm    string
	garden bool
	hosts  string
}

func (o *options) directory() (landscape.Directory, error) {
	dir, err := filepath.Abs(o.dir)
	return landscape.Directory(dir), err
}

func newCommand() *cobra.Command {
	o := &options{}
	root := &cobra.Command{
		Use:           "landscape",
		Short:         "A shoot's control plane with simulated machines, on one machine and without containers",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&o.dir, "dir", landscape.DefaultDir, "directory for all files of the landscape")

	up := &cobra.Command{
		Use:   "up",
		Short: "Start the landscape in the background, and wait until it is ready",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return up(cmd.Context(), o, cmd.OutOrStdout()) },
	}
	run := &cobra.Command{
		Use:   "run",
		Short: "Run the landscape in the foreground, until it is interrupted or a component fails",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o, cmd.OutOrStdout()) },
	}
	for _, cmd := range []*cobra.Command{up, run} {
		cmd.Flags().StringVar(&o.mcm, "mcm", landscape.DefaultMCM, "generation of machine-controller-manager")
		cmd.Flags().BoolVar(&o.garden, "garden", false, "start a garden, in which Shoots can be created, and no Shoot")
		cmd.Flags().StringVar(&o.hosts, "hosts", "", "kind of hosts that machines run on, baremetalhost, ironcore-0.3 or ironcore-0.7, empty for none")
		cmd.PreRunE = func(*cobra.Command, []string) error {
			return errors.Join(landscape.ValidateMCM(o.mcm), hosts.Validate(o.hosts))
		}
	}
	apply := &cobra.Command{
		Use:   "apply FILE",
		Short: "Create or update a Shoot, and wait for its machines",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return apply(cmd.Context(), o, args[0], cmd.OutOrStdout())
		},
	}
	down := &cobra.Command{
		Use:   "down",
		Short: "Stop the landscape",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return down(cmd.Context(), o, cmd.OutOrStdout()) },
	}
	assets := &cobra.Command{
		Use:   "assets",
		Short: "Build what landscapes run, and print the directory with the binaries for controller-runtime's envtest",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := landscape.EnsureBinaries(cmd.Context(), cmd.ErrOrStderr()); err != nil {
				return err
			}
			dir, err := binaries.Assets(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), dir)
			return err
		},
	}
	root.AddCommand(up, apply, down, run, assets)
	return root
}
