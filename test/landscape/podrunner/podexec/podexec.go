// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package podexec runs an executable in namespaces of its own, with directories mounted where a container of a pod would
// have its volumes, and with the host name of the pod. It does so by running the calling executable once more: the init function of this package
// then arranges the mounts and becomes the wanted executable. This works in any binary that imports the package, those
// of "go test" included. The package has hardly any dependencies, so that little is initialised before.
package podexec

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// SelfPath is the executable to start for a command.
const SelfPath = "/proc/self/exe"

// envKey is the environment variable that carries the command to the child process.
const envKey = "LANDSCAPE_PODEXEC"

// Command is what to run.
type Command struct {
	// Path is the executable.
	Path string
	// Args are its arguments, without the name of the executable.
	Args []string
	// Env is its whole environment: nothing is inherited.
	Env []string
	// Hostname is the host name that it sees.
	Hostname string
	// Mounts are the directories to mount.
	Mounts []Mount
}

// Mount mounts the directory Source at Target. Target need not exist on the host, and nothing is created there.
type Mount struct {
	Source, Target string
}

// EnvVar returns the environment variable with which SelfPath has to be started.
func (c Command) EnvVar() (string, error) {
	encoded, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("could not encode the command: %w", err)
	}
	return envKey + "=" + string(encoded), nil
}

// SysProcAttr returns the attributes with which SelfPath has to be started. A user who is not root gets a user namespace
// in addition, as root of which mounting is allowed.
func SysProcAttr() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS}
	if os.Geteuid() != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return attr
}

func init() {
	encoded, ok := os.LookupEnv(envKey)
	if !ok {
		return
	}
	fmt.Fprintf(os.Stderr, "could not start the container: %v\n", become(encoded))
	os.Exit(127)
}

// become returns only if it fails.
func become(encoded string) error {
	command := Command{}
	if err := json.Unmarshal([]byte(encoded), &command); err != nil {
		return fmt.Errorf("could not decode the command: %w", err)
	}

	if err := unix.Sethostname([]byte(command.Hostname)); err != nil {
		return fmt.Errorf("could not set the host name: %w", err)
	}
	// Without this, the mounts below would be seen by the host.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("could not make the mounts private (root or unprivileged user namespaces are needed): %w", err)
	}
	for _, mount := range command.Mounts {
		target, err := makeTarget(mount.Target)
		if err != nil {
			return fmt.Errorf("could not make the mount point %s: %w", mount.Target, err)
		}
		if err := unix.Mount(mount.Source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("could not mount %s at %s: %w", mount.Source, mount.Target, err)
		}
	}

	if err := syscall.Exec(command.Path, append([]string{command.Path}, command.Args...), command.Env); err != nil {
		return fmt.Errorf("could not execute %s: %w", command.Path, err)
	}
	return nil
}

// mirrors are the devices of the file systems that mirror has mounted: only they are written to.
var mirrors = map[uint64]bool{}

// makeTarget returns the path of the target without symbolic links, after having created it in this mount namespace.
func makeTarget(target string) (string, error) {
	ancestor, rest, err := existingAncestor(target)
	if err != nil {
		return "", err
	}
	if rest == "" {
		return ancestor, nil
	}
	stat := unix.Stat_t{}
	if err := unix.Stat(ancestor, &stat); err != nil {
		return "", err
	}
	if !mirrors[stat.Dev] {
		if err := mirror(ancestor); err != nil {
			return "", fmt.Errorf("could not mirror %s: %w", ancestor, err)
		}
	}
	target = filepath.Join(ancestor, rest)
	return target, os.MkdirAll(target, 0o755)
}

// existingAncestor splits the path into its deepest existing part, without symbolic links, and the rest.
func existingAncestor(path string) (string, string, error) {
	rest := ""
	for {
		resolved, err := filepath.EvalSymlinks(path)
		if err == nil {
			return resolved, rest, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", "", err
		}
		rest = filepath.Join(filepath.Base(path), rest)
		path = filepath.Dir(path)
	}
}

// mirror mounts an empty file system over the directory and shows in it what is in the directory. So the directory looks
// as before, and something can be created in it without touching the host.
func mirror(dir string) error {
	if dir == "/" {
		return errors.New("mount points directly below the root directory are not supported")
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	// The descriptor still leads to the original directory when another file system hides it.
	original, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(original)
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
		return err
	}
	stat := unix.Stat_t{}
	if err := unix.Stat(dir, &stat); err != nil {
		return err
	}
	mirrors[stat.Dev] = true

	for _, entry := range entries {
		var (
			source = filepath.Join("/proc/self/fd", strconv.Itoa(original), entry.Name())
			target = filepath.Join(dir, entry.Name())
		)
		switch {
		case entry.Type()&fs.ModeSymlink != 0:
			link, err := os.Readlink(source)
			if err != nil {
				return err
			}
			if err := os.Symlink(link, target); err != nil {
				return err
			}
			continue
		case entry.IsDir():
			err = os.Mkdir(target, 0o755)
		default:
			err = os.WriteFile(target, nil, 0o644)
		}
		if err != nil {
			return err
		}
		if err := unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("could not show %s: %w", target, err)
		}
	}
	return nil
}
