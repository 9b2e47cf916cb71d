// What a program does with the client that openapi-generator makes for Java.
import org.openapitools.client.ApiClient;
import org.openapitools.client.ApiException;
import org.openapitools.client.api.ChangesApi;
import org.openapitools.client.api.StoresApi;
import org.openapitools.client.model.Change;
import org.openapitools.client.model.Payload;
import org.openapitools.client.model.PayloadPatch;
import org.openapitools.client.model.Store;

public class Calls {
  static void check(boolean condition, String what) {
    if (!condition) throw new AssertionError(what);
  }

  static ApiClient client(String url) {
    ApiClient client = new ApiClient();
    client.updateBaseUri(url);
    return client;
  }

  public static void main(String[] urls) throws Exception {
    StoresApi stores = new StoresApi(client(urls[0]));
    Store made = stores.createStore(new Payload().name("Harbour"), null, "one");
    check(made.getId() == 1 && made.getAddress() == null, "a store is made");
    PayloadPatch patch = new PayloadPatch().address("20 Quay Road");
    Store moved = stores.patchStore(1L, patch, null, null, null);
    check(moved.getAddress().equals("20 Quay Road"), "one field is changed");
    try {
      stores.createStore(new Payload().name(""), null, null);
      check(false, "an empty name is refused");
    } catch (ApiException refused) {
      check(refused.getCode() == 400, "an empty name is refused");
    }
    ChangesApi changes = new ChangesApi(client(urls[0]));
    Change first = changes.listChanges(null, 1, null, "asc", null).getChanges().get(0);
    check(first.getType() == Change.TypeEnum.CREATED, "a page of changes");
    try {
      StoresApi proxied = new StoresApi(client(urls[1]));
      proxied.listStores(null, null, null, null, null, null, null, null, null, null);
      check(false, "a proxy's page of HTML");
    } catch (ApiException behind) {
      check(behind.getCode() == 502 && behind.getResponseBody().contains("<html>"), "a proxy's page");
    }
  }
}
