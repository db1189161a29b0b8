package istiod

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// Client is a connection as the debug API shows it.
type Client struct {
	ID          string              `json:"connectionId"`
	ConnectedAt time.Time           `json:"connectedAt"`
	Address     string              `json:"address,omitempty"`
	Labels      map[string]string   `json:"labels,omitempty"`
	Metadata    map[string]any      `json:"metadata,omitempty"`
	Watches     map[string][]string `json:"watches,omitempty"`
}

// DebugPage answers a question of the debug API over either transport: adsz or
// connections, about all clients or, with ?proxyID=, about the first that has the
// text in its ID. It returns the body and the HTTP status.
func DebugPage(query string, clients []Client) (body []byte, code int) {
	page, filter, _ := strings.Cut(query, "?proxyID=")
	if page != "adsz" && page != "connections" {
		return []byte("404 page not found"), http.StatusNotFound
	}
	var listed []Client
	for _, c := range clients {
		if page == "connections" {
			c.Metadata, c.Watches = nil, nil
		}
		if strings.Contains(c.ID, filter) {
			listed = append(listed, c)
		}
	}
	if filter != "" {
		if len(listed) == 0 {
			return []byte("Proxy not connected to this Pilot instance. It may be connected to another instance."), http.StatusNotFound
		}
		listed = listed[:1]
	}
	body, err := json.Marshal(struct {
		Total   int      `json:"totalClients"`
		Clients []Client `json:"clients,omitempty"`
	}{len(listed), listed})
	if err != nil {
		panic(err) // only metadata that is no JSON does this
	}
	return body, http.StatusOK
}

// ServeDebug answers a request to the debug API over HTTP by DebugPage.
func ServeDebug(w http.ResponseWriter, r *http.Request, clients []Client) {
	body, code := DebugPage(strings.TrimPrefix(r.URL.RequestURI(), "/debug/"), clients)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(body)
}
