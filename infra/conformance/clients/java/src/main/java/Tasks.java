import com.fasterxml.jackson.databind.DeserializationFeature;
import java.io.File;
import java.net.URI;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.List;
import lifecycle.ApiClient;
import lifecycle.ApiException;
import lifecycle.ApiResponse;
import lifecycle.api.AlertsApi;
import lifecycle.api.AuthenticationApi;
import lifecycle.api.ComplianceApi;
import lifecycle.api.ComplianceApi.APIReportViolationsRequest;
import lifecycle.api.DiscoveryApi;
import lifecycle.api.DiscoveryApi.APIListAssetsRequest;
import lifecycle.api.SettingsApi;
import lifecycle.api.SettingsApi.APIGetLoggingSettingsRequest;
import lifecycle.model.AlertRuleChange;
import lifecycle.model.AlertRuleWithSecret;
import lifecycle.model.Asset;
import lifecycle.model.AssetDetails;
import lifecycle.model.AssetList;
import lifecycle.model.ComplianceScore;
import lifecycle.model.Credentials;
import lifecycle.model.LoggingChanges;
import lifecycle.model.NewAlertRule;
import lifecycle.model.Problem;
import lifecycle.model.Setting;
import lifecycle.model.SignedInUser;

/** The ten tasks of every generated client, in Java. Prints one line for each task; the part `clients` compares the lines. */
public class Tasks {
  /** A call of the client. */
  interface Call {
    Object run() throws Exception;
  }

  static final ApiClient client = new ApiClient();

  static void check(boolean holds, String expected) {
    if (!holds) throw new IllegalStateException("Expected: " + expected);
  }

  /** Returns the problem document of a call that must fail. */
  static Problem problemOf(Call call) throws Exception {
    try {
      call.run();
    } catch (ApiException error) {
      return client.getObjectMapper().readValue(error.getResponseBody(), Problem.class);
    }
    throw new IllegalStateException("Expected: a problem document");
  }

  public static void main(String[] arguments) throws Exception {
    client.updateBaseUri(System.getenv("SERVICE"));
    // Rejects unknown members: the generator otherwise reads any answer as the first of several possible schemas.
    ApiClient strict = new ApiClient();
    strict.updateBaseUri(System.getenv("SERVICE"));
    strict.setObjectMapper(ApiClient.createDefaultObjectMapper()
        .configure(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, true));
    AuthenticationApi authentication = new AuthenticationApi(strict);

    // 1. Sign in.
    Credentials credentials = new Credentials()
        .username(System.getenv("CLIENT_USERNAME"))
        .password(System.getenv("CLIENT_PASSWORD"));
    String token = authentication.signIn(credentials).getSignedIn().getAccessToken();
    client.setRequestInterceptor(request -> request.header("Authorization", "Bearer " + token));
    strict.setRequestInterceptor(client.getRequestInterceptor());
    SignedInUser me = new AuthenticationApi(strict).getMe().getSignedInUser();
    System.out.println("sign in: " + me.getUsername() + " " + me.getRole());

    // 2. Read a list page by page.
    DiscoveryApi discovery = new DiscoveryApi(client);
    List<Asset> assets = new ArrayList<>();
    String cursor = null;
    int pages = 0;
    do {
      AssetList page = discovery.listAssets(APIListAssetsRequest.newBuilder().limit(2).cursor(cursor).build());
      check(page.getLimit() == 2, "a page of two items");
      assets.addAll(page.getItems());
      cursor = page.getNextCursor();
      pages++;
    } while (cursor != null);
    System.out.println("read a list by pages: " + assets.size() + " assets, " + pages + " pages");

    // 3. Filter a list by an enumeration, a boolean and an order.
    AssetList filtered = discovery.listAssets(
        APIListAssetsRequest.newBuilder().type("secret").outOfScope(false).enabled(true).sort("name").build());
    for (Asset asset : filtered.getItems())
      check(asset.getType() == Asset.TypeEnum.SECRET && asset.getEnabled(), "an enabled secret");
    System.out.println("filter a list: " + filtered.getItems().size() + " enabled secrets");

    // 4. Read one resource, and a trend of a number of days.
    AssetDetails asset = discovery.getAsset(assets.get(0).getId());
    ComplianceApi compliance = new ComplianceApi(client);
    ComplianceScore score = compliance.getComplianceScore(30);
    System.out.println(
        "read one asset and the score: " + asset.getId() + " " + asset.getStatus() + " " + score.getHistory().size());

    // 5. Create.
    AlertsApi alerts = new AlertsApi(client);
    ApiResponse<AlertRuleWithSecret> created = alerts.createAlertRuleWithHttpInfo(new NewAlertRule()
        .name("Conformance Java")
        .alertType(NewAlertRule.AlertTypeEnum.EXPIRATION)
        .thresholdDays(30)
        .recipients(List.of("a@b.example"))
        .enabled(false));
    AlertRuleWithSecret rule = created.getData();
    System.out.println("create a rule: " + created.getStatusCode() + " " + rule.getName() + " " + rule.getEnabled());

    // 6. Change with an ETag, and again with the outdated one.
    AlertRuleWithSecret changed =
        alerts.updateAlertRule(rule.getId(), new AlertRuleChange().thresholdDays(14), rule.getEtag());
    Problem outdated = problemOf(
        () -> alerts.updateAlertRule(rule.getId(), new AlertRuleChange().thresholdDays(7), rule.getEtag()));
    System.out.println("change it with an ETag: "
        + changed.getThresholdDays() + " " + outdated.getStatus() + " " + outdated.getCode());

    // 7. Delete.
    Object deleted = alerts.deleteAlertRule(rule.getId(), changed.getEtag()).getDeleted();
    Problem gone = problemOf(() -> alerts.getAlertRule(rule.getId(), null));
    System.out.println("delete it: " + deleted + " " + gone.getStatus() + " " + gone.getCode());

    // 8. Dry run: the change is previewed, and the setting stays.
    SettingsApi settings = new SettingsApi(client);
    ApiResponse<List<Setting>> preview = settings.updateLoggingSettingsWithHttpInfo(
        new LoggingChanges().logLevel(LoggingChanges.LogLevelEnum.ERROR), true, null);
    ApiResponse<List<Setting>> logging =
        settings.getLoggingSettingsWithHttpInfo(APIGetLoggingSettingsRequest.newBuilder().build());
    check(!logging.getData().isEmpty() && preview.getData().equals(logging.getData()), "unchanged settings");
    System.out.println("preview a change: " + preview.getStatusCode() + " " + logging.getStatusCode());

    // 9. Export files.
    // The library `native` of OpenAPI Generator 7.25.0 reads a text as JSON, so its HTTP client fetches the CSV file.
    HttpRequest request = HttpRequest.newBuilder(URI.create(client.getBaseUri() + "/api/assets/discovery/export/csv"))
        .header("Authorization", "Bearer " + token)
        .build();
    String csv = client.getHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body();
    File pdf = compliance.reportViolations(APIReportViolationsRequest.newBuilder().build());
    byte[] bytes = Files.readAllBytes(pdf.toPath());
    check(bytes.length > 2000, "a PDF");
    System.out.println("export files: " + csv.trim().split("\r\n").length + " " + new String(bytes, 0, 4));

    // 10. Errors are problem documents.
    Problem unknown = problemOf(() -> discovery.getAsset("kv-none.secret.none"));
    Problem invalid = problemOf(() -> discovery.listAssets(APIListAssetsRequest.newBuilder().limit(0).build()));
    System.out.println("handle errors: "
        + unknown.getCode() + " " + invalid.getCode() + " " + invalid.getErrors().get(0).getPath());
  }
}
