// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence/retention"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
)

// gatherTimeout is how long evidence is gathered. With writing it, that is a minute at most.
const gatherTimeout = 55 * time.Second

const evidenceLong = `Gather what is known about a node and its machine into a file, as long as it is there.

The file is a tar.gz. Read its index.md first: it says in plain words what happened. With --seed-namespace, operators also get what
the seed knows, and can name a machine whose node is gone or has never joined.

The command takes a minute at most. What it cannot get is left out, and the file says why. The file contains no Secrets, no values
of environment variables, and no command lines of pods. It does contain names, addresses, Events and logs: look at it before you
share it.`

const evidenceExamples = `  # What your rights in the shoot let you see, into evidence-<node>-<time>.tar.gz
  kubectl preserve evidence NODE

  # With what the seed knows, for operators
  kubectl preserve evidence NODE --seed-kubeconfig seed.yaml --seed-namespace shoot--project--name -o node.tar.gz

  # What was stored when the machine failed, also after it is gone
  kubectl preserve evidence list
  kubectl preserve evidence MACHINE --stored

  # What was stored in the seed, for operators
  kubectl preserve evidence MACHINE --stored --seed-kubeconfig seed.yaml --seed-namespace shoot--project--name`

// evidenceOptions are those of one call.
type evidenceOptions struct {
	*Options
	name, output string
	maxSize      resource.QuantityValue
	stored       bool
}

// newEvidenceCommand returns kubectl preserve evidence.
func newEvidenceCommand(o *Options) *cobra.Command {
	e := &evidenceOptions{Options: o}
	cmd := &cobra.Command{
		Use:               "evidence NODE",
		Short:             "Gather what is known about a node and its machine into a file",
		Long:              evidenceLong,
		Example:           evidenceExamples,
		Args:              named("evidence NODE", 1),
		ValidArgsFunction: o.completeNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			e.name = args[0]
			return e.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&e.output, "output", "o", "", "File to write, - for the standard output (default evidence-<name>-<time>.tar.gz)")
	e.maxSize.Quantity = *resource.NewQuantity(evidence.DefaultMaxSize, resource.BinarySI)
	flags.Var(&e.maxSize, "max-size", "Maximum size of the file. Logs are cut first, from their beginning")
	flags.BoolVar(&e.stored, "stored", false, "Write what was stored when the machine failed, and gather nothing")
	cmd.MarkFlagsMutuallyExclusive("max-size", "stored")
	cmd.AddCommand(&cobra.Command{
		Use:               "list",
		Short:             "List what was stored when machines failed",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return o.listStored(cmd.Context()) },
	})
	return cmd
}

func (o *evidenceOptions) run(ctx context.Context) error {
	if o.maxSize.Value() <= 0 {
		return fmt.Errorf("--max-size=%s: must be a number of bytes more than 0, for example 8Mi", o.maxSize.String())
	}
	if o.stored {
		return o.runStored(ctx)
	}
	sources, err := o.everyone()
	if err != nil {
		return err
	}
	return o.gather(ctx, sources, o.maxSize.Value())
}

func (o *evidenceOptions) gather(ctx context.Context, sources evidence.Sources, maxSize int64) error {
	ctx, cancel := context.WithTimeout(ctx, gatherTimeout)
	defer cancel()
	bundle, err := evidence.Collect(ctx, sources)
	if errors.Is(err, evidence.ErrNotFound) && o.SeedNamespace == "" {
		return fmt.Errorf("%w. Of what is gone, something may be stored: kubectl preserve evidence list. Operators can name the machine of a node that is gone: pass --seed-namespace, and --seed-kubeconfig", err)
	}
	if err != nil {
		return err
	}
	var (
		archive bytes.Buffer
		written evidence.Size
	)
	if written, err = bundle.WriteTo(&archive, maxSize); err != nil {
		return fmt.Errorf("%w: raise --max-size", err)
	}
	if err := o.write(archive.Bytes()); err != nil {
		return err
	}
	o.tell(bundle, written)
	return nil
}

// tell says what was had and what was not.
func (o *evidenceOptions) tell(bundle *evidence.Bundle, written evidence.Size) {
	fmt.Fprintf(o.ErrOut, "%d files, %s. Read index.md first: tar -xzOf FILE index.md\n", written.Files, bytesText(int64(written.Bytes)))
	if o.SeedNamespace == "" {
		fmt.Fprintln(o.ErrOut, "Without what the seed knows (the Machine, its Events, logs of the control plane): operators pass --seed-namespace and --seed-kubeconfig.")
	}
	for _, path := range written.Cut {
		fmt.Fprintf(o.ErrOut, "Cut at its beginning: %s\n", path)
	}
	for _, missing := range bundle.Snapshot.Missing {
		if o.SeedNamespace == "" && missing.Thing == observed.WhatSeed {
			continue
		}
		fmt.Fprintf(o.ErrOut, "Not to be had: %s: %s\n", missing.What(), missing.Reason)
	}
	for _, what := range written.LeftOut {
		fmt.Fprintf(o.ErrOut, "No place for: %s\n", what)
	}
}

// everyone returns who is asked: kubelets and logs as well, and with the seed also if the shoot cannot be.
func (o *evidenceOptions) everyone() (evidence.Sources, error) {
	sources := evidence.Sources{Tool: "kubectl-preserve " + version.Get().GitVersion, Clock: o.Clock, Name: o.name, SeedNamespace: o.SeedNamespace}
	shoot, config, err := o.shootClient()
	if err == nil {
		sources.Shoot = shoot
		sources.NodeProxy = o.nodeProxy
		if config != nil {
			sources.NodeProxy, err = evidence.NewNodeProxy(config)
		}
	}
	if !o.wantsSeed() {
		return sources, err
	}
	if err != nil {
		// The seed may know of the machine all the same.
		fmt.Fprintln(o.ErrOut, brief.Cut(err.Error()))
	}
	if sources.Seed, config, err = o.seedClient(); err != nil {
		return sources, err
	}
	sources.PodLogs = o.podLogs
	if config != nil {
		sources.PodLogs, err = podLogs(config)
	}
	return sources, err
}

// podLogs reads the logs of containers.
func podLogs(config *rest.Config) (evidence.PodLogs, error) {
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, namespace, pod string, options *corev1.PodLogOptions) (io.ReadCloser, error) {
		return clientset.CoreV1().Pods(namespace).GetLogs(pod, options).Stream(ctx)
	}, nil
}

// write writes a bundle to where it was asked for: a file is there whole or not at all.
func (o *evidenceOptions) write(archive []byte) error {
	if o.output == "-" {
		_, err := o.Out.Write(archive)
		return err
	}
	if info, err := os.Lstat(o.output); err == nil && !info.Mode().IsRegular() { // a device, a pipe or a link stays what it is
		if err := os.WriteFile(o.output, archive, 0o600); err != nil {
			return fmt.Errorf("cannot write --output %q: %w", o.output, err)
		}
		return write(o.Out, o.output+"\n")
	}
	name := o.output
	if name == "" {
		name = fmt.Sprintf("evidence-%s-%s.tar.gz", filepath.Base(o.name), o.Clock.Now().UTC().Format("20060102T150405Z"))
	}
	// Only its owner may read it. It is renamed at the end, so that there never is half of it.
	partial, err := os.CreateTemp(filepath.Dir(name), ".evidence-*")
	if err != nil {
		return fmt.Errorf("cannot write to the folder of --output %q: %w", name, err)
	}
	defer os.Remove(partial.Name())
	_, err = partial.Write(archive)
	if err = errors.Join(err, partial.Close()); err == nil {
		err = os.Rename(partial.Name(), name)
	}
	if err != nil {
		return fmt.Errorf("cannot write --output %q: %w", name, err)
	}
	_, err = fmt.Fprintln(o.Out, name)
	return err
}

// errStoredDenied says which Role allows reading what is stored in the shoot.
var errStoredDenied = fmt.Errorf("you may not read the evidence that is stored in the shoot: ask its owner to bind you to Role %s in namespace %s", retention.ShootViewer, retention.ShootNamespace)

// storedEvidence is what was stored when machines failed.
type storedEvidence struct {
	client.Reader
	// namespace is where it is, and where is that in words.
	namespace, where string
	isShoot          bool
	// items are what is said of the bundles, without the bundles themselves, that which is worth most last.
	items []metav1.PartialObjectMetadata
}

// readStored reads what is stored: in the shoot, or in the seed if that is wanted.
func (o *Options) readStored(ctx context.Context) (*storedEvidence, error) {
	var (
		s    *storedEvidence
		list = &metav1.PartialObjectMetadataList{}
		err  error
	)
	if o.wantsSeed() {
		s = &storedEvidence{namespace: o.SeedNamespace, where: fmt.Sprintf("namespace %s of the seed", o.SeedNamespace)}
		s.Reader, _, err = o.seedClient()
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	} else {
		s = &storedEvidence{namespace: retention.ShootNamespace, where: "the shoot", isShoot: true}
		s.Reader, _, err = o.shootClient()
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	}
	if err != nil {
		return nil, err
	}
	if err := s.List(ctx, list, client.InNamespace(s.namespace), client.MatchingLabels{retention.LabelStored: "true"}); err != nil {
		return nil, s.errorOf(fmt.Errorf("cannot list stored evidence in %s: %w", s.where, err))
	}
	slices.SortStableFunc(list.Items, func(a, b metav1.PartialObjectMetadata) int { return retention.CompareLast(&a, &b) })
	s.items = list.Items
	return s, nil
}

// errorOf returns what an error means to the user.
func (s *storedEvidence) errorOf(err error) error {
	if s.isShoot && apierrors.IsForbidden(err) {
		return errStoredDenied
	}
	return err
}

func (o *Options) listStored(ctx context.Context) error {
	stored, err := o.readStored(ctx)
	if err != nil {
		return err
	}
	if len(stored.items) == 0 {
		fmt.Fprintf(o.ErrOut, "No evidence is stored in %s. It is where the shoot's configuration has evidence: {enabled: true} and a machine failed since.\n", stored.where)
		return nil
	}
	lines := []line{head("MACHINE", "NODE", "STORED", "AGE")}
	for i := range stored.items {
		item := &stored.items[i]
		at := item.CreationTimestamp.Time
		lines = append(lines, line{cells: []string{retention.StoredMachine(item), item.Annotations[retention.AnnotationStoredNode], stamp(at), left(o.Clock.Now(), at)}})
	}
	return write(o.Out, o.table(lines...))
}

// runStored writes a bundle that was stored, after a look at whether it is whole.
func (o *evidenceOptions) runStored(ctx context.Context) error {
	stored, err := o.readStored(ctx)
	if err != nil {
		return err
	}
	archive, err := stored.bundle(ctx, o.name)
	if err != nil {
		return err
	}
	return o.write(archive)
}

// bundle returns the last bundle that was stored of a machine, or of a node. What is in the shoot may be anybody's.
func (s *storedEvidence) bundle(ctx context.Context, name string) ([]byte, error) {
	key := client.ObjectKey{}
	for i := range s.items {
		if item := &s.items[i]; retention.StoredMachine(item) == name || item.Annotations[retention.AnnotationStoredNode] == name {
			key = client.ObjectKeyFromObject(item)
		}
	}
	if key.Name == "" {
		return nil, fmt.Errorf("no evidence of a machine or node %q is stored in %s: kubectl preserve evidence list shows of which there is", name, s.where)
	}
	kind, archive, err := "ConfigMap", []byte(nil), error(nil)
	if s.isShoot {
		secret := &corev1.Secret{}
		kind, err = "Secret", s.Get(ctx, key, secret)
		archive = secret.Data[retention.StoredKey]
	} else {
		configMap := &corev1.ConfigMap{}
		err = s.Get(ctx, key, configMap)
		archive = configMap.BinaryData[retention.StoredKey]
	}
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("the evidence of %q has just been deleted, as its time was over", name)
	}
	if err != nil {
		return nil, s.errorOf(err)
	}
	if _, err := evidence.Read(bytes.NewReader(archive)); err != nil {
		return nil, fmt.Errorf("%s %s: %w", kind, key, err)
	}
	return archive, nil
}

// bytesText returns a size as people read it.
func bytesText(n int64) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d bytes", n)
}
