import { Link } from "@fluentui/react-components";
import { api } from "../../api/client.ts";
import { Answer } from "../../parts/answer.tsx";
import { Copyable } from "../../parts/copyable.tsx";

/** What is registered with the identity provider, as our own metadata has it. */
export function Addresses() {
  const metadata = api.useQuery("get", "/auth/sso/metadata", { parseAs: "text" });
  return (
    <Answer of={metadata}>
      {(text) => {
        const document = new DOMParser().parseFromString(String(text), "application/xml");
        const attribute = (element: string, name: string) =>
          document.getElementsByTagNameNS("*", element).item(0)?.getAttribute(name) ?? "";
        return (
          <>
            <Copyable
              label="Redirect URI (OpenID Connect), assertion consumer service (SAML)"
              text={attribute("AssertionConsumerService", "Location")}
            />
            <Copyable label="Our entity id and metadata (SAML)" text={attribute("EntityDescriptor", "entityID")} />
            <Link href="/auth/sso/metadata" target="_blank">
              Metadata as a file
            </Link>
          </>
        );
      }}
    </Answer>
  );
}
