// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
)

// What is redacted, in the words of the manifest.
const (
	redactedEnv         = "values of environment variables of containers"
	redactedCommands    = "commands and arguments of containers, their probes and hooks"
	redactedHeaders     = "values of HTTP headers of probes, hooks and the kubelet's configuration"
	redactedAnnotations = "annotations that are large, have objects, or are not of Kubernetes, Gardener, Metal3, IronCore or NVIDIA"
	redactedMessages    = "termination messages of containers"
	redactedVolumes     = "attributes of volumes for their drivers"
	redactedFields      = "managed fields"
	redactedState       = "last known states of machines (of their providers)"
	redactedImages      = "lists of images of nodes"
	redactedConditions  = "conditions beyond the first 50 of a node"
	redactedCredentials = "what looks like a credential, in texts and logs"
)

// counts is how often what was redacted.
type counts map[string]int

func (c counts) add(what string, n int) {
	if n > 0 {
		c[what] += n
	}
}

// redactMeta removes what says nothing of an object, and may say what others are not to know.
func redactMeta(meta *metav1.ObjectMeta, c counts) {
	if meta.ManagedFields != nil {
		meta.ManagedFields = nil
		c.add(redactedFields, 1)
	}
	for key, value := range meta.Annotations {
		if !known(key, value) {
			delete(meta.Annotations, key)
			c.add(redactedAnnotations, 1)
		}
	}
}

// maxAnnotation is how many bytes an annotation has at most.
const maxAnnotation = 1 << 10

var (
	knownDomain    = regexp.MustCompile(`^(?:.*\.)?(?:gardener\.cloud|sapcloud\.io|kubernetes\.io|k8s\.io|metal3\.io|ironcore\.dev|nvidia\.com)$`)
	credentialName = regexp.MustCompile(`(?i)` + credentialWords)
)

// known says that an annotation is of those who look after nodes and machines. Objects that tools have written down in one are
// not: they may be whole objects with all that is redacted elsewhere.
func known(key, value string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return knownDomain.MatchString(domain) && key != corev1.LastAppliedConfigAnnotation && !credentialName.MatchString(key) &&
		len(value) <= maxAnnotation && !strings.HasPrefix(strings.TrimSpace(value), "{") && !strings.HasPrefix(strings.TrimSpace(value), "[")
}

// redactNode removes the list of images, which is most of a node.
func redactNode(node *corev1.Node, c counts) {
	redactMeta(&node.ObjectMeta, c)
	node.Status.Conditions = cutConditions(node.Status.Conditions, c)
	if node.Status.Images != nil {
		node.Status.Images = nil
		c.add(redactedImages, 1)
	}
}

// maxConditions is how many conditions are kept of a node.
const maxConditions = 50

// cutConditions returns the first conditions of a node, or of a machine that has a node's, with the beginnings of their texts.
func cutConditions(conditions []corev1.NodeCondition, c counts) []corev1.NodeCondition {
	if len(conditions) > maxConditions {
		c.add(redactedConditions, len(conditions)-maxConditions)
		conditions = conditions[:maxConditions]
	}
	for i := range conditions {
		conditions[i].Reason, conditions[i].Message = cutText(conditions[i].Reason), cutText(conditions[i].Message)
	}
	return conditions
}

// cutText returns the first maxText bytes of a text.
func cutText(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:wholeWords(text[:maxText])], "")
}

// wholeWords is where the last word begins of a text that was cut, or where the text ends if that is too far away: of the user in a
// URL and his password, nobody knows what they are without the host.
func wholeWords(text string) int {
	const far = 512
	if i := strings.LastIndexAny(text[max(0, len(text)-far):], " \t"); i >= 0 {
		return max(0, len(text)-far) + i
	}
	return len(text)
}

// redactPod leaves the names of environment variables, and where they come from.
func redactPod(pod *corev1.Pod, c counts) {
	redactMeta(&pod.ObjectMeta, c)
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i].VolumeSource
		if volume.CSI != nil && volume.CSI.VolumeAttributes != nil {
			volume.CSI.VolumeAttributes = nil
			c.add(redactedVolumes, 1)
		}
		if volume.FlexVolume != nil && volume.FlexVolume.Options != nil {
			volume.FlexVolume.Options = nil
			c.add(redactedVolumes, 1)
		}
		if volume.Ephemeral != nil && volume.Ephemeral.VolumeClaimTemplate != nil {
			redactMeta(&volume.Ephemeral.VolumeClaimTemplate.ObjectMeta, c)
		}
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses} {
		for i := range statuses {
			for _, ended := range []*corev1.ContainerStateTerminated{statuses[i].State.Terminated, statuses[i].LastTerminationState.Terminated} {
				if ended != nil && ended.Message != "" {
					ended.Message = ""
					c.add(redactedMessages, 1)
				}
			}
		}
	}
	for i := range pod.Spec.InitContainers {
		redactContainer(&pod.Spec.InitContainers[i], c)
	}
	for i := range pod.Spec.Containers {
		redactContainer(&pod.Spec.Containers[i], c)
	}
	for i := range pod.Spec.EphemeralContainers {
		// Both have the same fields, by the same names.
		container := corev1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		redactContainer(&container, c)
		pod.Spec.EphemeralContainers[i].EphemeralContainerCommon = corev1.EphemeralContainerCommon(container)
	}
}

func redactAttachment(attachment *storagev1.VolumeAttachment, c counts) {
	redactMeta(&attachment.ObjectMeta, c)
	if attachment.Spec.Source.InlineVolumeSpec != nil || attachment.Status.AttachmentMetadata != nil {
		attachment.Spec.Source.InlineVolumeSpec, attachment.Status.AttachmentMetadata = nil, nil
		c.add(redactedVolumes, 1)
	}
}

func redactContainer(container *corev1.Container, c counts) {
	for i := range container.Env {
		if container.Env[i].Value != "" {
			container.Env[i].Value = ""
			c.add(redactedEnv, 1)
		}
	}
	if len(container.Command)+len(container.Args) > 0 {
		container.Command, container.Args = nil, nil
		c.add(redactedCommands, 1)
	}
	for _, probe := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe, container.StartupProbe} {
		if probe != nil {
			redactHandler(probe.Exec, probe.HTTPGet, c)
		}
	}
	if container.Lifecycle != nil {
		for _, handler := range []*corev1.LifecycleHandler{container.Lifecycle.PostStart, container.Lifecycle.PreStop} {
			if handler != nil {
				redactHandler(handler.Exec, handler.HTTPGet, c)
			}
		}
	}
}

func redactHandler(exec *corev1.ExecAction, get *corev1.HTTPGetAction, c counts) {
	if exec != nil && exec.Command != nil {
		exec.Command = nil
		c.add(redactedCommands, 1)
	}
	if get == nil {
		return
	}
	for i := range get.HTTPHeaders {
		if get.HTTPHeaders[i].Value != "" {
			get.HTTPHeaders[i].Value = ""
			c.add(redactedHeaders, 1)
		}
	}
}

// redact removes from what is known what must not be kept.
func redact(s *observed.Snapshot, c counts) {
	each := func(metas ...*metav1.ObjectMeta) {
		for _, meta := range metas {
			redactMeta(meta, c)
		}
	}
	for i := range s.Shoot.Nodes {
		redactNode(&s.Shoot.Nodes[i], c)
	}
	for i := range s.Shoot.Pods {
		redactPod(&s.Shoot.Pods[i], c)
	}
	for i := range s.Shoot.PodDisruptionBudgets {
		each(&s.Shoot.PodDisruptionBudgets[i].ObjectMeta)
	}
	for i := range s.Shoot.VolumeAttachments {
		redactAttachment(&s.Shoot.VolumeAttachments[i], c)
	}
	for i := range s.Shoot.Events {
		each(&s.Shoot.Events[i].ObjectMeta)
	}
	for i := range s.Shoot.Maintenances {
		each(&s.Shoot.Maintenances[i].ObjectMeta)
	}
	if s.Seed == nil {
		return
	}
	for i := range s.Seed.Machines {
		each(&s.Seed.Machines[i].ObjectMeta, &s.Seed.Machines[i].Spec.NodeTemplateSpec.ObjectMeta)
		s.Seed.Machines[i].Status.Conditions = cutConditions(s.Seed.Machines[i].Status.Conditions, c)
		if s.Seed.Machines[i].Status.LastKnownState != "" {
			s.Seed.Machines[i].Status.LastKnownState = ""
			c.add(redactedState, 1)
		}
	}
	for i := range s.Seed.MachineSets {
		template := &s.Seed.MachineSets[i].Spec.Template
		each(&s.Seed.MachineSets[i].ObjectMeta, &template.ObjectMeta, &template.Spec.NodeTemplateSpec.ObjectMeta)
	}
	for i := range s.Seed.MachineDeployments {
		template := &s.Seed.MachineDeployments[i].Spec.Template
		each(&s.Seed.MachineDeployments[i].ObjectMeta, &template.ObjectMeta, &template.Spec.NodeTemplateSpec.ObjectMeta)
	}
	for i := range s.Seed.Events {
		each(&s.Seed.Events[i].ObjectMeta)
	}
	for i := range s.Seed.Hosts {
		redactHost(&s.Seed.Hosts[i], c)
	}
	if s.Seed.Controller != nil {
		// Others may have them, too.
		controller := *s.Seed.Controller
		controller.Args = slices.Clone(controller.Args)
		redactArgs(controller.Args, c)
		s.Seed.Controller = &controller
	}
}

// redactHost leaves our own record on a host.
func redactHost(host *unstructured.Unstructured, c counts) {
	record, isOurs := host.GetAnnotations()[v1alpha1.AnnotationHostOwner]
	meta := metav1.ObjectMeta{ManagedFields: host.GetManagedFields(), Annotations: host.GetAnnotations()}
	delete(meta.Annotations, v1alpha1.AnnotationHostOwner)
	redactMeta(&meta, c)
	if isOurs {
		meta.Annotations[v1alpha1.AnnotationHostOwner] = record
	}
	host.SetManagedFields(meta.ManagedFields)
	host.SetAnnotations(meta.Annotations)
}

// credentialFlag is a flag whose value is a credential, by its name. What it names may follow in the next argument.
var credentialFlag = regexp.MustCompile(`(?i)^(--?[\w.-]*` + credentialWords + `[\w.-]*)(=?)`)

// redactArgs removes the values of those arguments that look like credentials.
func redactArgs(args []string, c counts) {
	secret := false
	for i, arg := range args {
		scrubbed, n := scrub([]byte(arg))
		found := credentialFlag.FindStringSubmatch(arg)
		switch {
		case secret && !strings.HasPrefix(arg, "-") && !plainValue.MatchString(arg):
			args[i], n = redacted, 1
		case found != nil && found[2] == "=" && !plainValue.MatchString(arg[len(found[0]):]) && !plainField.MatchString(arg):
			args[i], n = found[1]+"="+redacted, 1
		default:
			args[i] = string(scrubbed)
		}
		c.add(redactedCredentials, n)
		secret = found != nil && found[2] == ""
	}
}

// maxDepth is how deeply what a kubelet says may be nested, many times more than it is: its lines may be indented.
const maxDepth = 32

// checkDepth returns an error if JSON is nested more deeply than that.
func checkDepth(data []byte) error {
	if _, depth := measure(data); depth > maxDepth {
		return fmt.Errorf("it is nested more than %d levels deep", maxDepth)
	}
	return nil
}

// redactConfigz returns a kubelet's configuration without the headers that it sends. What is no JSON is an error, since
// nobody knows then what it says.
func redactConfigz(data []byte, c counts) ([]byte, error) {
	var config any
	if err := json.Unmarshal(data, &config); err != nil {
		return nil, err
	}
	if err := checkDepth(data); err != nil {
		return nil, err
	}
	var walk func(any)
	walk = func(value any) {
		switch value := value.(type) {
		case map[string]any:
			for key := range value {
				if headers, ok := value[key].(map[string]any); ok && key == "staticPodURLHeader" {
					for header := range headers {
						headers[header] = redacted
						c.add(redactedHeaders, 1)
					}
					continue
				}
				walk(value[key])
			}
		case []any:
			for _, item := range value {
				walk(item)
			}
		}
	}
	walk(config)
	return json.MarshalIndent(config, "", "  ")
}

// maxLine is how many characters of a text that others wrote are shown in one line.
const maxLine = 512

// line returns the first characters of a text that others wrote, in one line, without what moves the cursor or looks like a
// credential.
func line(text string) string {
	scrubbed, _ := scrub([]byte(text))
	var b strings.Builder
	count := 0
	for _, r := range string(scrubbed) {
		switch {
		case count == maxLine:
			return b.String() + "..."
		case unicode.IsPrint(r):
		case unicode.IsSpace(r):
			r = ' '
		default:
			continue
		}
		b.WriteRune(r)
		count++
	}
	return b.String()
}
