// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drainer_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

func TestDrainer(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Drainer Suite")
}

// errHang stands for an answer that never comes, and errPanic for one that nobody has thought of.
var errHang, errPanic = errors.New("no answer"), errors.New("what is this")

// shoot is an API server that lists pods in pages, and evicts and deletes them. It answers in memory, so that a test may
// turn the time.
type shoot struct {
	kubernetes.Interface

	mutex sync.Mutex
	pods  []*corev1.Pod
	// daemonSets are the keys of those that exist.
	daemonSets []string
	// refuse, by name of a pod, is the answer to its eviction or deletion, listing that to lists of pods, and lookup that
	// to lookups of DaemonSets.
	refuse          map[string]error
	listing, lookup error
	// delay is how long each answer takes.
	delay time.Duration
	// budgets, by namespace, is the answer to lists of PodDisruptionBudgets.
	budgets map[string]error
	// failPage is the number of the list that gets no connection, counted from 1.
	failPage int
	// evicted and deleted are the names of pods in the order of the calls, and options those of all these calls.
	evicted, deleted []string
	options          []metav1.DeleteOptions
	// patches are the bodies of the patches of pods by name.
	patches map[string]string
	// end, if set, is what a deletion by force does to a pod, and a deletion within its grace period. By default it does nothing.
	end func(pod *corev1.Pod, byForce bool)
	// calls are the methods of all calls, and biggest is the number of pods in the longest list.
	calls   []string
	biggest int
}

func newShoot(objects ...runtime.Object) *shoot {
	s := &shoot{refuse: map[string]error{}, patches: map[string]string{}}
	for _, object := range objects {
		switch o := object.(type) {
		case *corev1.Pod:
			s.pods = append(s.pods, o)
		case *appsv1.DaemonSet:
			s.daemonSets = append(s.daemonSets, o.Namespace+"/"+o.Name)
		}
	}
	s.sort()
	s.Interface = kubernetes.NewForConfigOrDie(&rest.Config{Host: "http://shoot", Transport: s, QPS: -1})
	return s
}

// sort puts the pods into the order in which they are listed.
func (s *shoot) sort() {
	slices.SortFunc(s.pods, func(a, b *corev1.Pod) int { return strings.Compare(keyOf(a), keyOf(b)) })
}

// RoundTrip answers as kube-apiserver does.
func (s *shoot) RoundTrip(request *http.Request) (*http.Response, error) {
	if s.delay > 0 {
		select {
		case <-time.After(s.delay):
		case <-request.Context().Done():
			return nil, request.Context().Err()
		}
	}
	object, err := s.serve(request)
	if errors.Is(err, errHang) {
		<-request.Context().Done()
		return nil, request.Context().Err()
	}
	if errors.Is(err, errPanic) {
		panic(err)
	}
	code, header := http.StatusOK, http.Header{"Content-Type": {"application/json"}}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		answer := status.Status()
		answer.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		object, code = &answer, int(answer.Code)
		if answer.Details != nil && answer.Details.RetryAfterSeconds > 0 {
			header.Set("Retry-After", strconv.Itoa(int(answer.Details.RetryAfterSeconds)))
		}
	} else if err != nil {
		return nil, err
	}
	body, err := json.Marshal(object)
	return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(bytes.NewReader(body)), Request: request}, err
}

func (s *shoot) serve(request *http.Request) (any, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.calls = append(s.calls, request.Method)

	ok := &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess}
	path := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	switch {
	case request.Method == http.MethodGet && request.URL.Path == "/api/v1/pods":
		if s.listing != nil {
			return nil, s.listing
		}
		if s.failPage--; s.failPage == 0 {
			return nil, errors.New("no connection")
		}
		return s.list(request)
	case request.Method == http.MethodGet && strings.HasPrefix(request.URL.Path, "/apis/apps/v1/namespaces/"):
		if s.lookup != nil {
			return nil, s.lookup
		}
		if key := path[4] + "/" + path[6]; !slices.Contains(s.daemonSets, key) {
			return nil, apierrors.NewNotFound(schema.GroupResource{Group: "apps", Resource: "daemonsets"}, path[6])
		}
		return &appsv1.DaemonSet{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"}}, nil
	case request.Method == http.MethodGet && path[len(path)-1] == "poddisruptionbudgets":
		return &policyv1.PodDisruptionBudgetList{TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudgetList"}}, s.budgets[path[4]]
	case request.Method == http.MethodPost && path[len(path)-1] == "eviction":
		eviction := &policyv1.Eviction{}
		if err := json.NewDecoder(request.Body).Decode(eviction); err != nil {
			return nil, err
		}
		if eviction.APIVersion != "policy/v1" || eviction.Kind != "Eviction" || eviction.Name != path[5] || eviction.Namespace != path[3] {
			return nil, apierrors.NewBadRequest("not an eviction of the pod")
		}
		s.evicted, s.options = append(s.evicted, eviction.Name), append(s.options, *eviction.DeleteOptions)
		return ok, s.refuse[eviction.Name]
	case request.Method == http.MethodDelete && path[4] == "pods":
		options := metav1.DeleteOptions{}
		if err := json.NewDecoder(request.Body).Decode(&options); err != nil {
			return nil, err
		}
		s.deleted, s.options = append(s.deleted, path[5]), append(s.options, options)
		if i := slices.IndexFunc(s.pods, func(p *corev1.Pod) bool { return keyOf(p) == path[3]+"/"+path[5] }); i >= 0 && s.end != nil {
			s.end(s.pods[i], options.GracePeriodSeconds != nil)
		}
		return ok, s.refuse[path[5]]
	case request.Method == http.MethodPatch && path[4] == "pods":
		if contentType := request.Header.Get("Content-Type"); contentType != "application/merge-patch+json" {
			return nil, apierrors.NewBadRequest("not a merge patch: " + contentType)
		}
		body, err := io.ReadAll(request.Body)
		s.patches[path[5]] = string(body)
		return ok, cmp.Or(s.refuse[path[5]], err)
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{}, request.URL.Path)
}

// list continues with the pods behind the key that is the token.
func (s *shoot) list(request *http.Request) (any, error) {
	query := request.URL.Query()
	node, ofNode := strings.CutPrefix(query.Get("fieldSelector"), "spec.nodeName=")
	if !ofNode {
		return nil, apierrors.NewBadRequest("all pods of the cluster were asked for")
	}
	limit, _ := strconv.Atoi(query.Get("limit"))

	list := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	for _, pod := range s.pods {
		if pod.Spec.NodeName != node || keyOf(pod) <= query.Get("continue") {
			continue
		}
		if limit > 0 && len(list.Items) == limit {
			list.Continue = keyOf(&list.Items[limit-1])
			break
		}
		list.Items = append(list.Items, *pod)
	}
	s.biggest = max(s.biggest, len(list.Items))
	return list, nil
}

func keyOf(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

type podOption = builder.PodOption

var (
	pod, mirror, terminating     = builder.Pod, builder.Mirror, builder.Terminating
	inNamespace, onNode, ownedBy = builder.InNamespace, builder.OnNode, builder.OwnedBy
	orphan, volume               = builder.Orphan, builder.Volume
)
