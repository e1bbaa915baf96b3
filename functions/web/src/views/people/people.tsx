import { useMay } from "../../api/access.ts";
import { Card } from "../../parts/card.tsx";
import { FeatureGate } from "../../parts/feature-gate.tsx";
import { useSearchParams } from "../../parts/router.tsx";
import { View } from "../../parts/view.tsx";
import { ApiTokens } from "./api-tokens.tsx";
import { Approvals } from "./approvals.tsx";
import { SecondFactor } from "./second-factor.tsx";
import { Sessions } from "./sessions.tsx";
import { Users } from "./users.tsx";

/**
 * The Access page: API tokens, sessions, second factors and users. With a user in the address, it also shows the sessions of
 * that user.
 */
export default function People() {
  const [params] = useSearchParams();
  const may = useMay();
  const mayReadUsers = may("listUsers");
  const user = params.get("user");
  return (
    <View title="Access">
      <Card title="API tokens">
        <ApiTokens />
      </Card>
      <Card title="Your sessions">
        <Sessions />
      </Card>
      <Card title="Your second factors">
        <SecondFactor />
      </Card>
      {may("listApprovals") && (
        <Card title="Approvals">
          <Approvals />
        </Card>
      )}
      <Card title="Users">
        <FeatureGate
          operation="listUsers"
          description="Create, edit and unlock users. Single sign-on creates users automatically."
        >
          <Users />
        </FeatureGate>
      </Card>
      {mayReadUsers && user !== null && (
        <div key={user} ref={scrollIntoView}>
          <Card title={`Sessions of ${user}`}>
            <Sessions user={user} />
          </Card>
        </div>
      )}
    </View>
  );
}

/** Scrolls to the sessions of a user, which are below a long list of users. */
const scrollIntoView = (element: HTMLElement | null) => element?.scrollIntoView({ block: "nearest" });
