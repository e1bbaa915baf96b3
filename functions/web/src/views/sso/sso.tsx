import { api } from "../../api/client.ts";
import { Answer } from "../../parts/answer.tsx";
import { Card } from "../../parts/card.tsx";
import { Offered } from "../../parts/offered.tsx";
import { View } from "../../parts/view.tsx";
import { Addresses } from "./addresses.tsx";
import { Passwords } from "./passwords.tsx";
import { People } from "./people.tsx";
import { Provider } from "./provider.tsx";
import { Refused } from "./refused.tsx";

/** How people sign in by the company's own identity provider. */
export default function Sso() {
  return (
    <View title="Single sign-on">
      <Offered
        operation="getSsoConfiguration"
        what="People sign in by OpenID Connect or SAML with your own identity provider, which also says what they may do. Passwords can then be switched off."
      >
        <Configuration />
      </Offered>
    </View>
  );
}

function Configuration() {
  const configuration = api.useQuery("get", "/auth/sso/config");
  return (
    <Answer of={configuration}>
      {(now) => (
        <>
          <Card title="For the identity provider">
            <Addresses />
          </Card>
          <Card title="Provider">
            <Provider now={now} />
          </Card>
          <Card title="Who comes in, and as what">
            <People now={now} />
          </Card>
          <Card title="Passwords">
            <Passwords now={now} />
          </Card>
          <Card title="Refused">
            <Refused />
          </Card>
        </>
      )}
    </Answer>
  );
}
