package harness

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"
)

// get returns the body that is served at a URL; any status but 200 is an error.
func get(t testing.TB, url string) ([]byte, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must(t, err)
	client := http.Client{Timeout: 5 * time.Second}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, response.Status, body)
	}
	return body, err
}

// Get returns the body that is served at a URL; any status but 200 is an error.
func Get(t testing.TB, url string) ([]byte, error) {
	t.Helper()
	return get(t, url)
}
