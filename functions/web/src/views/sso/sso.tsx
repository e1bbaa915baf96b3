import { api } from "../../api/client.ts";
import { Card } from "../../parts/card.tsx";
import { FeatureGate } from "../../parts/feature-gate.tsx";
import { QueryResult } from "../../parts/query-result.tsx";
import { View } from "../../parts/view.tsx";
import { BlockedIdentities } from "./blocked-identities.tsx";
import { Passwords } from "./passwords.tsx";
import { People } from "./people.tsx";
import { Provider } from "./provider.tsx";
import { ServiceMetadata } from "./service-metadata.tsx";
import { SignInStatus } from "./sign-in-status.tsx";

/** The Single sign-on page. */
export default function Sso() {
  return (
    <View title="Single sign-on">
      <FeatureGate
        operation="getSsoConfiguration"
        description="Lets users sign in with your identity provider through OpenID Connect or SAML, with roles from the provider. You can then turn off password sign-in."
      >
        <Configuration />
      </FeatureGate>
    </View>
  );
}

/** The cards of the page, with the saved configuration. */
function Configuration() {
  const configuration = api.useQuery("get", "/auth/sso/config", {});
  return (
    <QueryResult of={configuration}>
      {(saved) => (
        <>
          <Card title="Status">
            <SignInStatus saved={saved} />
          </Card>
          <Card title="Identity provider">
            <Provider saved={saved} />
          </Card>
          <Card title="Values to enter at the identity provider">
            <ServiceMetadata saved={saved} />
          </Card>
          <Card title="Accounts and roles">
            <People saved={saved} />
          </Card>
          <Card title="Password sign-in">
            <Passwords saved={saved} />
          </Card>
          <Card title="Blocked identities">
            <BlockedIdentities />
          </Card>
        </>
      )}
    </QueryResult>
  );
}
