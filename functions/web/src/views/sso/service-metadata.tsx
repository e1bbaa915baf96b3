import { Link } from "@fluentui/react-components";
import { api } from "../../api/client.ts";
import { Copyable } from "../../parts/copyable.tsx";
import { QueryResult } from "../../parts/query-result.tsx";

/**
 * The card of the Single sign-on page with the values to register at the identity provider, from the service's SAML metadata.
 */
export function ServiceMetadata() {
  const metadata = api.useQuery("get", "/auth/sso/metadata", { parseAs: "text" });
  return (
    <QueryResult of={metadata}>
      {(text) => {
        const document = new DOMParser().parseFromString(String(text), "application/xml");
        /** Returns an attribute of the first element with this name, in any namespace. */
        const attribute = (element: string, name: string) =>
          document.getElementsByTagNameNS("*", element).item(0)?.getAttribute(name) ?? "";
        return (
          <>
            <Copyable
              label="Redirect URI (OpenID Connect) and assertion consumer service URL (SAML)"
              text={attribute("AssertionConsumerService", "Location")}
            />
            <Copyable
              label="Entity ID and metadata URL of this service (SAML)"
              text={attribute("EntityDescriptor", "entityID")}
            />
            <Link href="/auth/sso/metadata" target="_blank">
              Open SAML metadata
            </Link>
          </>
        );
      }}
    </QueryResult>
  );
}
