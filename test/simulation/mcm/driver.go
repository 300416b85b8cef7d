// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"context"
	"errors"

	"github.com/gardener/machine-controller-manager/pkg/util/provider/driver"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/codes"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/status"
)

// ErrNoVM says that a machine has no VM.
var ErrNoVM = errors.New("no VM")

// Cloud is where the VMs are, by the names of their machines.
type Cloud interface {
	// CreateVM makes a VM, and returns its id and the name of the node that it will register.
	CreateVM(machine string) (id, node string, err error)
	// FindVM returns ErrNoVM if there is none.
	FindVM(machine string) (id, node string, err error)
	// DeleteVM returns ErrNoVM if there is none.
	DeleteVM(machine string) error
	// ListVMs returns the machines' names by the ids of their VMs.
	ListVMs() (map[string]string, error)
}

// driverOf makes a driver of a cloud.
type driverOf struct{ Cloud }

func coded(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrNoVM):
		return status.Error(codes.NotFound, err.Error())
	default:
		return status.Error(codes.Unavailable, err.Error())
	}
}

func (d driverOf) CreateMachine(_ context.Context, req *driver.CreateMachineRequest) (*driver.CreateMachineResponse, error) {
	id, node, err := d.CreateVM(req.Machine.Name)
	return &driver.CreateMachineResponse{ProviderID: id, NodeName: node}, coded(err)
}

func (driverOf) InitializeMachine(context.Context, *driver.InitializeMachineRequest) (*driver.InitializeMachineResponse, error) {
	return nil, status.Error(codes.Unimplemented, "a VM needs nothing else")
}

func (d driverOf) DeleteMachine(_ context.Context, req *driver.DeleteMachineRequest) (*driver.DeleteMachineResponse, error) {
	return &driver.DeleteMachineResponse{}, coded(d.DeleteVM(req.Machine.Name))
}

func (d driverOf) GetMachineStatus(_ context.Context, req *driver.GetMachineStatusRequest) (*driver.GetMachineStatusResponse, error) {
	id, node, err := d.FindVM(req.Machine.Name)
	return &driver.GetMachineStatusResponse{ProviderID: id, NodeName: node}, coded(err)
}

func (d driverOf) ListMachines(context.Context, *driver.ListMachinesRequest) (*driver.ListMachinesResponse, error) {
	machines, err := d.ListVMs()
	return &driver.ListMachinesResponse{MachineList: machines}, coded(err)
}

func (driverOf) GetVolumeIDs(context.Context, *driver.GetVolumeIDsRequest) (*driver.GetVolumeIDsResponse, error) {
	return &driver.GetVolumeIDsResponse{}, nil
}
