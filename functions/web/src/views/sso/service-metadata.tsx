import { Link } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { Copyable } from "../../parts/copyable.tsx";
import { QueryResult } from "../../parts/query-result.tsx";

/**
 * The card of the Single sign-on page with the addresses to register at the identity provider, from the service's SAML
 * metadata. Addresses of the protocol that is not configured are folded.
 */
export function ServiceMetadata({ saved }: { saved: Schemas["SsoConfiguration"] }) {
  const metadata = api.useQuery("get", "/auth/sso/metadata", { parseAs: "text" });
  return (
    <QueryResult of={metadata}>
      {(text) => {
        const document = new DOMParser().parseFromString(String(text), "application/xml");
        /** Returns an attribute of the first element with this name, in any namespace. */
        const attribute = (element: string, name: string) =>
          document.getElementsByTagNameNS("*", element).item(0)?.getAttribute(name) ?? "";
        const callback = attribute("AssertionConsumerService", "Location");
        // The metadata has no single logout service unless requests are signed.
        const logout = new URL("/auth/sso/logout", callback).href;
        const oidc = (
          <Addresses
            of={{
              "Redirect URI (OpenID Connect)": callback,
              "Post-logout redirect URI (OpenID Connect)": new URL("/", callback).href,
              "Back-channel logout URI (OpenID Connect)": logout,
            }}
          />
        );
        const saml = (
          <>
            <Addresses
              of={{
                "Entity ID and metadata URL (SAML)": attribute("EntityDescriptor", "entityID"),
                "Assertion consumer service URL (SAML)": callback,
                "Single logout service URL (SAML, HTTP-Redirect)": logout,
              }}
            />
            <Link href="/auth/sso/metadata" target="_blank">
              Open SAML metadata
            </Link>
          </>
        );
        if ((saved.oidcIssuer ?? saved.samlIdpEntityId) === null)
          return (
            <>
              {oidc}
              {saml}
            </>
          );
        const isOidc = saved.providerType === "oidc";
        return (
          <>
            {isOidc ? oidc : saml}
            <details>
              <summary>Values for {isOidc ? "SAML" : "OpenID Connect"}, which is not configured</summary>
              {isOidc ? saml : oidc}
            </details>
          </>
        );
      }}
    </QueryResult>
  );
}

/** Addresses with a button each that copies them. */
const Addresses = ({ of: addresses }: { of: Record<string, string> }) =>
  Object.entries(addresses).map(([label, address]) => <Copyable key={label} label={label} text={address} />);
