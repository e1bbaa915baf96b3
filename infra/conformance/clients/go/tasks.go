// The ten tasks of every generated client, in Go. Prints one line for each task; the part `clients` compares the lines.
package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"strings"

	openapi_types "github.com/oapi-codegen/runtime/types"

	"tasks/api"
)

// must returns the value, or ends the program with the error.
func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

// assert ends the program if a condition does not hold. The text says what was expected.
func assert(holds bool, text string, seen ...any) {
	if !holds {
		fmt.Fprintln(os.Stderr, append([]any{text}, seen...)...)
		os.Exit(1)
	}
}

func main() {
	ctx := context.Background()
	service := os.Getenv("SERVICE")
	anonymous := must(api.NewClientWithResponses(service))

	// 1. Sign in.
	password := os.Getenv("CLIENT_PASSWORD")
	credentials := api.Credentials{Username: os.Getenv("CLIENT_USERNAME"), Password: &password}
	signIn := must(anonymous.SignInWithResponse(ctx, credentials))
	assert(signIn.JSON200 != nil, "signs in", signIn.Status())
	token := must(signIn.JSON200.AsSignedIn()).AccessToken
	client := must(api.NewClientWithResponses(service, api.WithRequestEditorFn(
		func(_ context.Context, request *http.Request) error {
			request.Header.Set("Authorization", "Bearer "+token)
			return nil
		},
	)))
	me := must(must(client.GetMeWithResponse(ctx)).JSON200.AsSignedInUser())
	fmt.Println("sign in:", me.Username, me.Role)

	// 2. Read a list page by page.
	var assets []api.Asset
	var cursor *string
	pages, limit := 0, 2
	for pages == 0 || cursor != nil {
		page := must(client.ListAssetsWithResponse(ctx, &api.ListAssetsParams{Limit: &limit, Cursor: cursor})).JSON200
		assert(page != nil && page.Limit == limit, "a page of two items")
		assets = append(assets, page.Items...)
		cursor = page.NextCursor
		pages++
	}
	fmt.Println("read a list by pages:", len(assets), "assets,", pages, "pages")

	// 3. Filter a list by an enumeration, a boolean and an order.
	yes, no := true, false
	secret, byName := api.ListAssetsParamsTypeSecret, api.ListAssetsParamsSortName
	filter := api.ListAssetsParams{Type: &secret, Enabled: &yes, OutOfScope: &no, Sort: &byName}
	filtered := must(client.ListAssetsWithResponse(ctx, &filter)).JSON200
	assert(filtered != nil, "a filtered list")
	for _, asset := range filtered.Items {
		assert(asset.Type == api.AssetTypeSecret && asset.Enabled, "an enabled secret", asset.Id)
	}
	fmt.Println("filter a list:", len(filtered.Items), "enabled secrets")

	// 4. Read one resource, and a trend of a number of days.
	asset := must(client.GetAssetWithResponse(ctx, assets[0].Id)).JSON200
	days := 30
	score := must(client.GetComplianceScoreWithResponse(ctx, &api.GetComplianceScoreParams{History: &days})).JSON200
	assert(asset != nil && score != nil && score.History != nil, "an asset and a score with its history")
	fmt.Println("read one asset and the score:", asset.Id, asset.Status, len(*score.History))

	// 5. Create.
	threshold := 30
	created := must(client.CreateAlertRuleWithResponse(ctx, api.NewAlertRule{
		Name:          "Conformance Go",
		AlertType:     api.NewAlertRuleAlertTypeExpiration,
		ThresholdDays: &threshold,
		Recipients:    &[]openapi_types.Email{"a@b.example"},
		Enabled:       &no,
	}))
	rule := created.JSON201
	assert(rule != nil, "a new rule", string(created.Body))
	fmt.Println("create a rule:", created.StatusCode(), rule.Name, rule.Enabled)

	// 6. Change with an ETag, and again with the outdated one.
	change := func(days int) *api.UpdateAlertRuleResponse {
		params := &api.UpdateAlertRuleParams{IfMatch: &rule.Etag}
		return must(client.UpdateAlertRuleWithResponse(ctx, rule.Id, params, api.AlertRuleChange{ThresholdDays: &days}))
	}
	changed := change(14).JSON200
	outdated := change(7).ApplicationproblemJSON412
	assert(changed != nil && outdated != nil, "a change and a failed precondition")
	fmt.Println("change it with an ETag:", *changed.ThresholdDays, outdated.Status, outdated.Code)

	// 7. Delete.
	deleteParams := &api.DeleteAlertRuleParams{IfMatch: &changed.Etag}
	deleted := must(client.DeleteAlertRuleWithResponse(ctx, rule.Id, deleteParams)).JSON200
	gone := must(client.GetAlertRuleWithResponse(ctx, rule.Id, nil)).ApplicationproblemJSON404
	assert(deleted != nil && gone != nil, "a deleted rule")
	fmt.Println("delete it:", deleted.Deleted, gone.Status, gone.Code)

	// 8. Dry run: the change is previewed, and the setting stays.
	level := api.ERROR
	preview := must(client.UpdateLoggingSettingsWithResponse(
		ctx, &api.UpdateLoggingSettingsParams{Preview: &yes}, api.LoggingChanges{LogLevel: &level},
	))
	logging := must(client.GetLoggingSettingsWithResponse(ctx, nil))
	assert(logging.JSON200 != nil && len(*logging.JSON200) > 0, "settings")
	assert(reflect.DeepEqual(preview.JSON200, logging.JSON200), "unchanged settings", string(preview.Body))
	fmt.Println("preview a change:", preview.StatusCode(), logging.StatusCode())

	// 9. Export files.
	csv := must(client.ExportAssetsWithResponse(ctx, &api.ExportAssetsParams{})).Body
	pdf := must(client.ReportViolationsWithResponse(ctx, &api.ReportViolationsParams{})).Body
	assert(len(pdf) > 2000, "a PDF", len(pdf))
	lines := strings.Split(strings.TrimSpace(string(csv)), "\r\n")
	fmt.Println("export files:", len(lines), string(bytes.Clone(pdf[:4])))

	// 10. Errors are problem documents.
	unknown := must(client.GetAssetWithResponse(ctx, "kv-none.secret.none")).ApplicationproblemJSON404
	zero := 0
	invalid := must(client.ListAssetsWithResponse(ctx, &api.ListAssetsParams{Limit: &zero})).ApplicationproblemJSON400
	assert(unknown != nil && invalid != nil && invalid.Errors != nil, "problem documents")
	fmt.Println("handle errors:", unknown.Code, invalid.Code, (*invalid.Errors)[0].Path)
}
