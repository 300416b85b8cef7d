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

// gatherTimeout bounds the gathering of evidence, so that with writing it takes a minute at most.
const gatherTimeout = 55 * time.Second

const evidenceLong = `Gather evidence of a node and its machine into a file.

The file is a tar.gz. Read its index.md first: it says what happened. With --seed-namespace, operators also get what the seed knows,
and can name a machine whose node is gone or never joined.

This takes a minute at most. What cannot be read is left out, and the file says why. The file has no Secrets, no values of environment
variables, and no command lines of pods. It has names, addresses, Events and logs: check it before you share it.`

const evidenceExamples = `  # What you are allowed to read in the shoot, into evidence-<node>-<time>.tar.gz
  kubectl preserve evidence NODE

  # Also what the seed knows, for operators
  kubectl preserve evidence NODE --seed-kubeconfig seed.yaml --seed-namespace shoot--project--name -o node.tar.gz

  # What was stored when the machine failed, even if it is gone now
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
		Short:             "Gather evidence of a node and its machine into a file",
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
	flags.Var(&e.maxSize, "max-size", "Maximum size of the file. Logs are cut first, at their beginning")
	flags.BoolVar(&e.stored, "stored", false, "Write the evidence that was stored when the machine failed, and gather nothing")
	cmd.MarkFlagsMutuallyExclusive("max-size", "stored")
	cmd.AddCommand(&cobra.Command{
		Use:               "list",
		Short:             "List the evidence that was stored when machines failed",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return o.listStored(cmd.Context()) },
	})
	return cmd
}

func (o *evidenceOptions) run(ctx context.Context) error {
	if o.maxSize.Value() <= 0 {
		return fmt.Errorf("--max-size=%s: must be greater than 0, for example 8Mi", o.maxSize.String())
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
		return fmt.Errorf("%w. If the machine is gone, its evidence may be stored: see 'kubectl preserve evidence list'. Operators can name a machine without a node: pass --seed-namespace and --seed-kubeconfig", err)
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

// tell says what was gathered and what was not.
func (o *evidenceOptions) tell(bundle *evidence.Bundle, written evidence.Size) {
	fmt.Fprintf(o.ErrOut, "%s, %s. Read index.md first: tar -xzOf FILE index.md\n", brief.Count(written.Files, "file"), bytesText(int64(written.Bytes)))
	if o.SeedNamespace == "" {
		fmt.Fprintln(o.ErrOut, "The file does not have what only the seed knows (the Machine, its Events, logs of the control plane). Operators get it with --seed-namespace and --seed-kubeconfig.")
	}
	for _, path := range written.Cut {
		fmt.Fprintf(o.ErrOut, "Cut at the beginning: %s\n", path)
	}
	for _, missing := range bundle.Snapshot.Missing {
		if o.SeedNamespace == "" && missing.Thing == observed.WhatSeed {
			continue
		}
		fmt.Fprintf(o.ErrOut, "Not gathered: %s: %s\n", missing.What(), missing.Reason)
	}
	for _, what := range written.LeftOut {
		fmt.Fprintf(o.ErrOut, "Left out because of --max-size: %s\n", what)
	}
}

// everyone returns all sources, with kubelets and logs; with the seed, even if there is no access to the shoot.
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
		// The seed may still know the machine.
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

// write writes a bundle to --output: a file is written completely or not at all.
func (o *evidenceOptions) write(archive []byte) error {
	if o.output == "-" {
		_, err := o.Out.Write(archive)
		return err
	}
	if info, err := os.Lstat(o.output); err == nil && !info.Mode().IsRegular() { // a device, a pipe or a link stays what it is
		if err := os.WriteFile(o.output, archive, 0o600); err != nil {
			return fmt.Errorf("failed to write --output=%s: %w", o.output, err)
		}
		return write(o.Out, o.output+"\n")
	}
	name := o.output
	if name == "" {
		name = fmt.Sprintf("evidence-%s-%s.tar.gz", filepath.Base(o.name), o.Clock.Now().UTC().Format("20060102T150405Z"))
	}
	// Only its owner may read it. It is renamed at the end, so that it is never incomplete.
	partial, err := os.CreateTemp(filepath.Dir(name), ".evidence-*")
	if err != nil {
		return fmt.Errorf("failed to write to the folder of --output=%s: %w", name, err)
	}
	defer os.Remove(partial.Name())
	_, err = partial.Write(archive)
	if err = errors.Join(err, partial.Close()); err == nil {
		err = os.Rename(partial.Name(), name)
	}
	if err != nil {
		return fmt.Errorf("failed to write --output=%s: %w", name, err)
	}
	_, err = fmt.Fprintln(o.Out, name)
	return err
}

// errStoredDenied says which Role allows to read evidence in the shoot.
var errStoredDenied = fmt.Errorf("you are not allowed to read the evidence in the shoot: ask its owner to bind you to Role %s in namespace %s", retention.ShootViewer, retention.ShootNamespace)

// storedEvidence is what was stored when machines failed.
type storedEvidence struct {
	client.Reader
	// namespace is where the evidence is, and where says the same in words.
	namespace, where string
	isShoot          bool
	// items are the metadata of the bundles, sorted by their worth, the most last.
	items []metav1.PartialObjectMetadata
}

// readStored reads the metadata of stored evidence: in the seed if there are flags for it, else in the shoot.
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
		return nil, s.errorOf(fmt.Errorf("failed to list the evidence in %s: %w", s.where, err))
	}
	slices.SortStableFunc(list.Items, func(a, b metav1.PartialObjectMetadata) int { return retention.CompareLast(&a, &b) })
	s.items = list.Items
	return s, nil
}

// errorOf returns an error that says what to do.
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
		fmt.Fprintf(o.ErrOut, "No evidence is stored in %s. To store evidence of machines that fail, set evidence: {enabled: true} in the providerConfig of the extension in the Shoot.\n", stored.where)
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

// runStored writes a stored bundle after checking that it is complete.
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

// bundle returns the last stored bundle of a machine or a node. In the shoot, anybody may have written it.
func (s *storedEvidence) bundle(ctx context.Context, name string) ([]byte, error) {
	key := client.ObjectKey{}
	for i := range s.items {
		if item := &s.items[i]; retention.StoredMachine(item) == name || item.Annotations[retention.AnnotationStoredNode] == name {
			key = client.ObjectKeyFromObject(item)
		}
	}
	if key.Name == "" {
		return nil, fmt.Errorf("no evidence of a machine or node %q is stored in %s: 'kubectl preserve evidence list' lists what is stored", name, s.where)
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
		return nil, fmt.Errorf("the evidence of %q has just been deleted, because its retention time was over", name)
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
	return brief.Count(n, "byte")
}
