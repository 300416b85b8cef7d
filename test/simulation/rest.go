// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// Serve answers a request of a process as a kube-apiserver does, in JSON. A watch lags behind by what lag says, and ends
// when cut is closed.
func (s *APIServer) Serve(by string, req *http.Request, lag func() time.Duration, cut <-chan struct{}) *http.Response {
	k, subresource, ok := parsePath(req.URL.Path)
	query := req.URL.Query()
	if ok && req.Method == http.MethodGet && k.name == "" && query.Get("watch") != "" {
		return s.watch(req.Context(), k, query, lag, cut)
	}
	body, err := s.answer(by, req, k, subresource, ok)
	if err != nil {
		return respondError(err)
	}
	return respond(http.StatusOK, io.NopCloser(bytes.NewReader(body)))
}

func respondError(err error) *http.Response {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	reason := status.Status()
	reason.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	body, _ := json.Marshal(reason)
	response := respond(int(reason.Code), io.NopCloser(bytes.NewReader(body)))
	if reason.Details != nil && reason.Details.RetryAfterSeconds > 0 {
		response.Header.Set("Retry-After", strconv.Itoa(int(reason.Details.RetryAfterSeconds)))
	}
	return response
}

// refuse answers with an error of a code.
func refuse(code int) *http.Response {
	return respondError(apierrors.NewGenericServerResponse(code, "write", schema.GroupResource{}, "", "fault", 0, false))
}

func respond(code int, body io.ReadCloser) *http.Response {
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Body: body, ContentLength: -1,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {"application/json"}},
	}
}

// parsePath takes /api/v1/nodes/x/status or /apis/group/version/namespaces/ns/machines/x apart.
func parsePath(path string) (k key, subresource string, ok bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		parts = parts[3:]
	default:
		return key{}, "", false
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		k.namespace, parts = parts[1], parts[2:]
	}
	parts = append(parts, "", "")
	k.resource, k.name, subresource = parts[0], parts[1], parts[2]
	_, known := resources[k.resource]
	return k, subresource, known
}

func isEvent(path string) bool { return strings.Contains(path, "/events") }

func (s *APIServer) answer(by string, req *http.Request, k key, subresource string, ok bool) ([]byte, error) {
	if isEvent(req.URL.Path) { // they are told, and not kept
		body, err := io.ReadAll(req.Body)
		if event, bad := decode(body); err == nil && bad == nil && s.OnEvent != nil {
			if note, ok, _ := unstructured.NestedString(event.Object, "note"); ok { // the older form is MCM's, who says what it writes anyway
				name, _, _ := unstructured.NestedString(event.Object, "regarding", "name")
				reason, _, _ := unstructured.NestedString(event.Object, "reason")
				s.OnEvent(by, name, reason, note)
			}
		}
		return body, err
	}
	if found := discovery(req.URL.Path); found != nil && req.Method == http.MethodGet {
		return json.Marshal(found)
	}
	isEviction := ok && k.resource == "pods" && subresource == "eviction" && req.Method == http.MethodPost
	if !ok || subresource != "" && subresource != "status" && !isEviction {
		return nil, apierrors.NewGenericServerResponse(http.StatusNotFound, req.Method, k.groupResource(), k.name, req.URL.Path, 0, false)
	}
	var body []byte
	if req.Body != nil {
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
	}

	if isEviction {
		return s.evict(by, k, body)
	}
	var (
		change *Change
		err    error
	)
	switch req.Method {
	case http.MethodGet:
		if k.name == "" {
			return s.list(k, req.URL.Query())
		}
		if change = s.Last(k); change == nil {
			err = apierrors.NewNotFound(k.groupResource(), k.name)
		}
	case http.MethodPost:
		var object *unstructured.Unstructured
		if object, err = decode(body); err == nil {
			k.name = object.GetName()
			change, err = s.Create(by, k, object)
		}
	case http.MethodPut:
		change, err = s.Update(by, k, subresource == "status", func(*unstructured.Unstructured) (*unstructured.Unstructured, error) { return decode(body) })
	case http.MethodPatch:
		change, err = s.Update(by, k, subresource == "status", func(object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			return patch(object, types.PatchType(req.Header.Get("Content-Type")), body)
		})
	case http.MethodDelete:
		var opts metav1.DeleteOptions
		if len(body) > 0 {
			if err := json.Unmarshal(body, &opts); err != nil {
				return nil, err
			}
		}
		if k.resource == "pods" {
			change, err = s.deletePod(by, k, opts)
			break
		}
		only := ptr.Deref(opts.Preconditions, metav1.Preconditions{})
		change, err = s.Delete(by, k, ptr.Deref(only.UID, ""), ptr.Deref(only.ResourceVersion, ""))
	default:
		err = apierrors.NewMethodNotSupported(k.groupResource(), req.Method)
	}
	if err != nil {
		return nil, err
	}
	return change.raw, nil
}

func decode(body []byte) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(body, &object.Object); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return object, nil
}

func patch(object *unstructured.Unstructured, patchType types.PatchType, body []byte) (*unstructured.Unstructured, error) {
	if patchType == types.JSONPatchType {
		change, err := jsonpatch.DecodePatch(body)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return patchJSON(object, change.Apply)
	}
	change, err := decode(body)
	if err != nil {
		return nil, err
	}
	switch {
	case patchType == types.MergePatchType:
		return patchJSON(object, func(before []byte) ([]byte, error) { return jsonpatch.MergePatch(before, body) })
	case patchType == types.StrategicMergePatchType && object.GetKind() == "Node":
		patched, err := strategicpatch.StrategicMergeMapPatch(object.DeepCopy().Object, change.Object, corev1.Node{})
		return &unstructured.Unstructured{Object: patched}, err
	default:
		return nil, apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "patch", schema.GroupResource{}, object.GetName(), string(patchType), 0, false)
	}
}

func patchJSON(object *unstructured.Unstructured, apply func([]byte) ([]byte, error)) (*unstructured.Unstructured, error) {
	before, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	after, err := apply(before)
	if err != nil {
		return nil, builder.Unprocessable(err)
	}
	return decode(after)
}

func (s *APIServer) list(k key, query url.Values) ([]byte, error) {
	selector, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	asked, err := fieldsOf(query)
	if err != nil {
		return nil, err
	}
	found, version := s.List(k.resource, k.namespace, selector)
	items := make([]json.RawMessage, 0, len(found))
	for _, change := range found {
		if asked == nil || asked(change.Object) {
			items = append(items, change.raw)
		}
	}
	kind := resources[k.resource]
	return json.Marshal(map[string]any{
		"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind + "List",
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(version)},
		"items":    items,
	})
}

func (s *APIServer) watch(ctx context.Context, k key, query url.Values, lag func() time.Duration, cut <-chan struct{}) *http.Response {
	asked, err := fieldsOf(query)
	if err != nil {
		return respondError(err)
	}
	w := &stream{server: s, key: k, asked: asked, lag: lag, ctx: ctx, cut: cut, closed: make(chan struct{})}
	w.version, _ = strconv.Atoi(query.Get("resourceVersion"))
	if query.Get("sendInitialEvents") == "true" {
		found, version := s.List(k.resource, k.namespace, labels.Everything())
		for _, change := range found {
			if asked == nil || asked(change.Object) {
				w.write(watch.Added, change.raw)
			}
		}
		kind := resources[k.resource]
		w.write(watch.Bookmark, fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"resourceVersion":"%d","annotations":{%q:"true"}}}`,
			kind.GroupVersion().String(), kind.Kind, version, metav1.InitialEventsAnnotationKey))
		w.version = version
	}
	return respond(http.StatusOK, w)
}

// stream is the body of a watch.
type stream struct {
	server *APIServer
	key    key
	// asked says which objects are to be seen, nil for all.
	asked func(*unstructured.Unstructured) bool
	// version is up to where the log was read.
	version int
	lag     func() time.Duration
	ctx     context.Context
	cut     <-chan struct{}
	closed  chan struct{}
	pending bytes.Buffer
}

func (w *stream) write(eventType watch.EventType, object []byte) {
	fmt.Fprintf(&w.pending, "{\"type\":%q,\"object\":%s}\n", eventType, object)
}

// Read implements io.Reader.
func (w *stream) Read(p []byte) (int, error) {
	for w.pending.Len() == 0 {
		changes, grown := w.server.Since(w.version)
		for _, change := range changes {
			w.version++
			if change.resource != w.key.resource || w.key.namespace != "" && change.namespace != w.key.namespace {
				continue
			}
			eventType, seen := change.seenAs(w.asked)
			if !seen {
				continue
			}
			if err := w.wait(nil, time.Until(change.At.Add(w.lag()))); err != nil {
				return 0, err
			}
			w.write(eventType, change.raw)
			break
		}
		if w.pending.Len() == 0 {
			if err := w.wait(grown, 0); err != nil {
				return 0, err
			}
		}
	}
	return w.pending.Read(p)
}

// wait waits for something or, if that is nil, for some time.
func (w *stream) wait(something <-chan struct{}, d time.Duration) error {
	var passed <-chan time.Time
	if something == nil {
		timer := time.NewTimer(max(d, 0))
		defer timer.Stop()
		passed = timer.C
	}
	select {
	case <-something:
	case <-passed:
	case <-w.closed:
		return io.EOF
	case <-w.cut:
		return io.ErrUnexpectedEOF
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
	return nil
}

// Close implements io.Closer.
func (w *stream) Close() error {
	select {
	case <-w.closed:
	default:
		close(w.closed)
	}
	return nil
}

// fieldsOf returns what says whether an object is asked for, nil if all are.
func fieldsOf(query url.Values) (func(*unstructured.Unstructured) bool, error) {
	selector, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if selector.Empty() {
		return nil, nil
	}
	for _, requirement := range selector.Requirements() {
		if !slices.Contains([]string{"metadata.name", "metadata.namespace", "spec.nodeName"}, requirement.Field) {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("field label not supported: %s", requirement.Field))
		}
	}
	return func(object *unstructured.Unstructured) bool {
		node, _, _ := unstructured.NestedString(object.Object, "spec", "nodeName")
		return selector.Matches(fields.Set{"metadata.name": object.GetName(), "metadata.namespace": object.GetNamespace(), "spec.nodeName": node})
	}, nil
}

// seenAs returns what a change is to who only sees the objects that are asked for, and false if it is nothing.
func (c *Change) seenAs(asked func(*unstructured.Unstructured) bool) (watch.EventType, bool) {
	if asked == nil {
		return c.Type, true
	}
	was, is := c.Before != nil && asked(c.Before), c.Type != watch.Deleted && asked(c.Object)
	switch {
	case was && is:
		return watch.Modified, true
	case is:
		return watch.Added, true
	default:
		return watch.Deleted, was
	}
}

// discovery returns what a client is told that asks whether pods can be evicted, nil for another question.
func discovery(path string) any {
	policy := metav1.GroupVersionForDiscovery{GroupVersion: policyv1.SchemeGroupVersion.String(), Version: "v1"}
	switch path {
	case "/api":
		return metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case "/apis":
		return metav1.APIGroupList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroupList"},
			Groups:   []metav1.APIGroup{{Name: policyv1.GroupName, Versions: []metav1.GroupVersionForDiscovery{policy}, PreferredVersion: policy}},
		}
	case "/api/v1":
		return metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: "v1",
			APIResources: []metav1.APIResource{
				{Name: "pods", Namespaced: true, Kind: "Pod"},
				{Name: "pods/eviction", Namespaced: true, Group: policyv1.GroupName, Version: "v1", Kind: "Eviction", Verbs: metav1.Verbs{"create"}},
			},
		}
	}
	return nil
}
