package harness

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"
)

// httpTime is what a server that is asked to do something has to answer.
const httpTime = time.Minute

// answer returns what a server answers.
func answer(client *http.Client, request *http.Request) (status int, body string, err error) {
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// get returns the body that is served at a URL; any status but 200 is an error.
func get(t testing.TB, url string) ([]byte, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	must(t, err)
	status, body, err := answer(&http.Client{Timeout: 5 * time.Second}, request)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s: status %d: %s", url, status, body)
	}
	return []byte(body), err
}

// Get returns the body that is served at a URL; any status but 200 is an error.
func Get(t testing.TB, url string) ([]byte, error) {
	t.Helper()
	return get(t, url)
}
