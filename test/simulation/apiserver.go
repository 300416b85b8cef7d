// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// APIServer keeps objects as a kube-apiserver does: with versions that a write must know, generations, finalizers, a
// status that is written by itself, and a log of all changes that watches read.
type APIServer struct {
	Name string
	// OnChange, if set, is called with each change in the order of the log, before anybody else sees it.
	OnChange func(*Change)
	// OnEvent, if set, is called with each Event.
	OnEvent func(by, name, reason, note string)

	mutex   sync.Mutex
	objects map[key]*Change
	// log has the change of version n at n-1.
	log []*Change
	// grown is closed, and replaced, when the log has grown.
	grown chan struct{}
	// names numbers the objects that are given a name.
	names int
	// evicting says that what is written is an eviction.
	evicting bool
}

type key struct{ resource, namespace, name string }

// Change is one write, and the object that it has left.
type Change struct {
	key
	Type watch.EventType
	At   time.Time
	// By is the process that wrote, Evicted says that it has asked for an eviction.
	By      string
	Evicted bool
	// Object is the one that was deleted if Type says so. It must not be changed, and nor must Before, the object as it was
	// before, nil for none.
	Object, Before *unstructured.Unstructured

	raw []byte
}

// NewAPIServer returns one without objects.
func NewAPIServer(name string) *APIServer {
	return &APIServer{Name: name, objects: map[key]*Change{}, grown: make(chan struct{})}
}

// resource is what is known of a kind of objects. Only these are served.
type resource struct {
	schema.GroupVersionKind

	// dropsStatus says that the status is not taken over from a create either: that of a custom resource.
	dropsStatus bool
	// whole says that there is no subresource for the status: it is written with the rest.
	whole bool
	// annotated says that annotations are written with the status.
	annotated bool
}

var resources = map[string]resource{
	"machines":               {GroupVersionKind: machineGroup.WithKind("Machine"), dropsStatus: true},
	"machinesets":            {GroupVersionKind: machineGroup.WithKind("MachineSet"), dropsStatus: true},
	"machinedeployments":     {GroupVersionKind: machineGroup.WithKind("MachineDeployment"), dropsStatus: true},
	"leases":                 {GroupVersionKind: schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}},
	"machineclasses":         {GroupVersionKind: machineGroup.WithKind("MachineClass")},
	"configmaps":             {GroupVersionKind: coreGroup.WithKind("ConfigMap")},
	"secrets":                {GroupVersionKind: coreGroup.WithKind("Secret")},
	"nodes":                  {GroupVersionKind: coreGroup.WithKind("Node"), annotated: true},
	"pods":                   {GroupVersionKind: coreGroup.WithKind("Pod")},
	"persistentvolumes":      {GroupVersionKind: coreGroup.WithKind("PersistentVolume")},
	"persistentvolumeclaims": {GroupVersionKind: coreGroup.WithKind("PersistentVolumeClaim")},
	"volumeattachments":      {GroupVersionKind: schema.GroupVersionKind{Group: "storage.k8s.io", Version: "v1", Kind: "VolumeAttachment"}},
	"poddisruptionbudgets":   {GroupVersionKind: schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"}},
}

var (
	machineGroup = schema.GroupVersion{Group: "machine.sapcloud.io", Version: "v1alpha1"}
	coreGroup    = schema.GroupVersion{Version: "v1"}
)

func (k key) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: resources[k.resource].Group, Resource: k.resource}
}

func (s *APIServer) clear() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.log, s.objects, s.OnChange, s.OnEvent = nil, nil, nil, nil
}

// Last returns the last change of an object, nil if there is none.
func (s *APIServer) Last(k key) *Change {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.objects[k]
}

// List returns the last changes of all objects that there are in a namespace (empty for all) in the order of their names,
// and the version of the list.
func (s *APIServer) List(resource, namespace string, selector labels.Selector) ([]*Change, int) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	var found []*Change
	for k, change := range s.objects {
		if k.resource == resource && (namespace == "" || k.namespace == namespace) && selector.Matches(labels.Set(change.Object.GetLabels())) {
			found = append(found, change)
		}
	}
	slices.SortFunc(found, func(a, b *Change) int { return strings.Compare(a.namespace+"/"+a.name, b.namespace+"/"+b.name) })
	return found, len(s.log)
}

// Since returns what has changed after a version, and a channel that is closed at the next change.
func (s *APIServer) Since(version int) ([]*Change, <-chan struct{}) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.log[min(version, len(s.log)):], s.grown
}

// Version returns the version of the last change.
func (s *APIServer) Version() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return len(s.log)
}

// Log returns all changes.
func (s *APIServer) Log() []*Change {
	changes, _ := s.Since(0)
	return changes
}

// Create adds an object.
func (s *APIServer) Create(by string, k key, object *unstructured.Unstructured) (*Change, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if k.name == "" {
		s.names++
		k.name = fmt.Sprintf("%s%03d", object.GetGenerateName(), s.names)
	}
	if s.objects[k] != nil {
		return nil, apierrors.NewAlreadyExists(k.groupResource(), k.name)
	}
	object.SetName(k.name)
	object.SetNamespace(k.namespace)
	object.SetUID(types.UID(fmt.Sprintf("%s-%d", k.name, len(s.log)+1)))
	object.SetCreationTimestamp(now())
	object.SetDeletionTimestamp(nil)
	object.SetGeneration(1)
	object.SetGroupVersionKind(resources[k.resource].GroupVersionKind)
	if resources[k.resource].dropsStatus {
		delete(object.Object, "status")
	}
	return s.append(by, k, watch.Added, object, nil), nil
}

// Update replaces an object, or its status only, by what edit makes of it, which must not change it.
func (s *APIServer) Update(by string, k key, status bool, edit func(*unstructured.Unstructured) (*unstructured.Unstructured, error)) (*Change, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	current := s.objects[k]
	if current == nil {
		return nil, apierrors.NewNotFound(k.groupResource(), k.name)
	}
	before := current.Object
	edited, err := edit(before)
	if err != nil {
		return nil, err
	}
	if version := edited.GetResourceVersion(); version != "" && version != before.GetResourceVersion() {
		return nil, apierrors.NewConflict(k.groupResource(), k.name, fmt.Errorf("the object has been modified"))
	}
	if uid := edited.GetUID(); uid != "" && uid != before.GetUID() {
		return nil, apierrors.NewConflict(k.groupResource(), k.name, fmt.Errorf("the UID is %s", before.GetUID()))
	}
	if !status && before.GetDeletionTimestamp() != nil && slices.ContainsFunc(edited.GetFinalizers(), func(f string) bool { return !slices.Contains(before.GetFinalizers(), f) }) {
		return nil, apierrors.NewForbidden(k.groupResource(), k.name, fmt.Errorf("no finalizer can be added to what is being deleted"))
	}

	after := &unstructured.Unstructured{}
	if status {
		after.Object = maps.Clone(before.Object)
		after.Object["metadata"] = runtime.DeepCopyJSONValue(before.Object["metadata"])
		after.Object["status"] = edited.Object["status"]
		if resources[k.resource].annotated {
			after.SetAnnotations(edited.GetAnnotations())
		}
	} else {
		after.Object = maps.Clone(edited.Object)
		if !resources[k.resource].whole {
			after.Object["status"] = before.Object["status"]
		}
		after.SetName(k.name)
		after.SetNamespace(k.namespace)
		after.SetUID(before.GetUID())
		after.SetCreationTimestamp(before.GetCreationTimestamp())
		after.SetDeletionTimestamp(before.GetDeletionTimestamp())
		after.SetDeletionGracePeriodSeconds(before.GetDeletionGracePeriodSeconds())
		after.SetGeneration(before.GetGeneration())
		after.SetGroupVersionKind(before.GroupVersionKind())
	}
	if after.Object["status"] == nil {
		delete(after.Object, "status")
	}
	after.SetResourceVersion(before.GetResourceVersion())
	if reflect.DeepEqual(after.Object, before.Object) {
		return current, nil
	}
	if !reflect.DeepEqual(after.Object["spec"], before.Object["spec"]) {
		after.SetGeneration(before.GetGeneration() + 1)
	}
	grace := after.GetDeletionGracePeriodSeconds() // only pods have one
	if after.GetDeletionTimestamp() != nil && len(after.GetFinalizers()) == 0 && (grace == nil || *grace == 0) {
		return s.append(by, k, watch.Deleted, after, before), nil
	}
	return s.append(by, k, watch.Modified, after, before), nil
}

// Delete deletes an object once it has no finalizers. With a UID, or a version, it must be that of the object.
func (s *APIServer) Delete(by string, k key, uid types.UID, version string) (*Change, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	current := s.objects[k]
	switch {
	case current == nil:
		return nil, apierrors.NewNotFound(k.groupResource(), k.name)
	case uid != "" && uid != current.Object.GetUID():
		return nil, apierrors.NewConflict(k.groupResource(), k.name, fmt.Errorf("the UID is %s", current.Object.GetUID()))
	case version != "" && version != current.Object.GetResourceVersion():
		return nil, apierrors.NewConflict(k.groupResource(), k.name, fmt.Errorf("the version is %s", current.Object.GetResourceVersion()))
	case len(current.Object.GetFinalizers()) == 0:
		return s.append(by, k, watch.Deleted, current.Object.DeepCopy(), current.Object), nil
	case current.Object.GetDeletionTimestamp() != nil:
		return current, nil
	}
	after := current.Object.DeepCopy()
	after.SetDeletionTimestamp(new(now()))
	after.SetGeneration(after.GetGeneration() + 1)
	return s.append(by, k, watch.Modified, after, current.Object), nil
}

func (s *APIServer) append(by string, k key, eventType watch.EventType, object, before *unstructured.Unstructured) *Change {
	object.SetResourceVersion(strconv.Itoa(len(s.log) + 1))
	object.SetManagedFields(nil)
	raw, err := json.Marshal(object.Object)
	if err != nil {
		panic(err) // it was JSON before
	}
	change := &Change{key: k, Type: eventType, At: time.Now(), By: by, Evicted: s.evicting, Object: object, Before: before, raw: raw}
	if eventType == watch.Deleted {
		delete(s.objects, k)
	} else {
		s.objects[k] = change
	}
	s.log = append(s.log, change)
	if s.OnChange != nil {
		s.OnChange(change)
	}
	close(s.grown)
	s.grown = make(chan struct{})
	return change
}

// now is what a time is in an object.
func now() metav1.Time { return metav1.NewTime(time.Now().Truncate(time.Second)) }
