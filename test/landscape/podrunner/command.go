// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package podrunner

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/podrunner/podexec"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/process"
)

const loopback = "127.0.0.1"

// errUnknownImage is returned for an image for which there is no executable.
var errUnknownImage = errors.New("unknown image")

// environment is what the containers of a pod find where they run.
type environment struct {
	// binaries maps the name of an image, without registry and tag, to an executable.
	binaries map[string]string
	// apiServerHost and apiServerPort are the address of the API server of the pod's own cluster.
	apiServerHost, apiServerPort string
	// ports maps the ports that the containers declare to the ports of the host that stand for them.
	ports map[int32]int32
	// volumesDir has a directory for each volume of the pod.
	volumesDir string
}

// command translates a container to what is executed for it. Only what a pod's own network namespace would do is not
// taken over literally, see environment.argument.
func (e environment) command(pod *corev1.Pod, container *corev1.Container) (podexec.Command, error) {
	path, ok := e.binaries[imageName(container.Image)]
	if !ok {
		return podexec.Command{}, fmt.Errorf("%w %q, known are %s", errUnknownImage, container.Image,
			strings.Join(slices.Sorted(maps.Keys(e.binaries)), ", "))
	}
	variables, err := e.variables(pod, container)
	if err != nil {
		return podexec.Command{}, err
	}
	mounts, err := e.mounts(pod, container)
	if err != nil {
		return podexec.Command{}, err
	}

	command := podexec.Command{Path: path, Hostname: pod.Name, Mounts: mounts}
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		command.Env = append(command.Env, name+"="+variables[name])
	}
	// The first word of the command is the executable, which the image has elsewhere.
	arguments := container.Args
	if len(container.Command) > 1 {
		arguments = slices.Concat(container.Command[1:], container.Args)
	}
	addressGiven := slices.ContainsFunc(arguments, func(argument string) bool { return strings.HasPrefix(argument, "--address") })
	for _, argument := range arguments {
		argument = expand(argument, variables)
		translated := e.argument(argument)
		command.Args = append(command.Args, translated)
		if translated != argument && strings.HasPrefix(argument, "--port=") && !addressGiven {
			command.Args = append(command.Args, "--address="+loopback)
		}
	}
	return command, nil
}

// imageName returns the name of an image without registry, tag and digest.
func imageName(image string) string {
	name, _, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], "@")
	name, _, _ = strings.Cut(name, ":")
	return name
}

var portArgument = regexp.MustCompile(`^(|.*[=:])(\d+)$`)

// argument translates an argument that ends with a declared port, such as --port=10258 or --metrics-bind-address=:8080.
// In a network namespace of its own a pod has every port for itself; here the declared port is replaced by a free one of
// the host, and an address of all interfaces by the loopback address. An executable that has a flag --port is expected
// to have a flag --address, too, as those of machine-controller-manager do: it is set to the loopback address.
func (e environment) argument(argument string) string {
	match := portArgument.FindStringSubmatch(argument)
	if match == nil {
		return argument
	}
	port, err := strconv.ParseInt(match[2], 10, 32)
	if err != nil {
		return argument
	}
	hostPort, ok := e.ports[int32(port)]
	if !ok {
		return argument
	}
	prefix, withAddress := strings.CutSuffix(match[1], ":")
	if !withAddress {
		return prefix + strconv.Itoa(int(hostPort))
	}
	for _, all := range []string{"0.0.0.0", "[::]", "*"} {
		prefix = strings.TrimSuffix(prefix, all)
	}
	if prefix == "" || strings.HasSuffix(prefix, "=") {
		prefix += loopback
	}
	return prefix + ":" + strconv.Itoa(int(hostPort))
}

// variables returns the environment variables of a container.
func (e environment) variables(pod *corev1.Pod, container *corev1.Container) (map[string]string, error) {
	variables := map[string]string{
		"HOME":                    "/",
		"HOSTNAME":                pod.Name,
		"PATH":                    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"KUBERNETES_SERVICE_HOST": e.apiServerHost,
		"KUBERNETES_SERVICE_PORT": e.apiServerPort,
	}
	if len(container.EnvFrom) > 0 {
		return nil, fmt.Errorf("envFrom of container %s is not supported", container.Name)
	}
	for _, variable := range container.Env {
		if variable.ValueFrom == nil {
			variables[variable.Name] = expand(variable.Value, variables)
			continue
		}
		if variable.ValueFrom.FieldRef == nil {
			return nil, fmt.Errorf("environment variable %s of container %s has a source that is not supported", variable.Name, container.Name)
		}
		value, err := field(pod, variable.ValueFrom.FieldRef.FieldPath)
		if err != nil {
			return nil, fmt.Errorf("environment variable %s of container %s: %w", variable.Name, container.Name, err)
		}
		variables[variable.Name] = value
	}
	return variables, nil
}

// field returns the value of a field of the pod that the downward API offers.
func field(pod *corev1.Pod, path string) (string, error) {
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.podIP", "status.hostIP":
		return loopback, nil
	default:
		return "", fmt.Errorf("field %q is not supported", path)
	}
}

var variableReference = regexp.MustCompile(`\$\([A-Za-z_][A-Za-z0-9_.-]*\)`)

// expand replaces references such as $(POD_NAME), and leaves those of unknown variables as they are.
func expand(value string, variables map[string]string) string {
	return variableReference.ReplaceAllStringFunc(value, func(reference string) string {
		if replacement, ok := variables[reference[2:len(reference)-1]]; ok {
			return replacement
		}
		return reference
	})
}

func (e environment) mounts(pod *corev1.Pod, container *corev1.Container) ([]podexec.Mount, error) {
	var mounts []podexec.Mount
	for _, mount := range container.VolumeMounts {
		if !slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool { return volume.Name == mount.Name }) {
			return nil, fmt.Errorf("container %s mounts volume %s, which the pod does not have", container.Name, mount.Name)
		}
		if mount.SubPath != "" || mount.SubPathExpr != "" {
			return nil, fmt.Errorf("container %s mounts a part of volume %s, which is not supported", container.Name, mount.Name)
		}
		mounts = append(mounts, podexec.Mount{Source: filepath.Join(e.volumesDir, mount.Name), Target: mount.MountPath})
	}
	return mounts, nil
}

// freePorts finds a free port of the loopback interface for each port that a container of the pod declares.
func freePorts(pod *corev1.Pod) (map[int32]int32, error) {
	ports := map[int32]int32{}
	for _, container := range pod.Spec.Containers {
		for _, port := range container.Ports {
			hostPort, err := process.FreePort()
			if err != nil {
				return nil, err
			}
			ports[port.ContainerPort] = int32(hostPort) // #nosec G115 -- a port fits
		}
	}
	return ports, nil
}
