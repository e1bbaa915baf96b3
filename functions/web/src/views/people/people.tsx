import { useMay } from "../../api/access.ts";
import { Card } from "../../parts/card.tsx";
import { Offered } from "../../parts/offered.tsx";
import { useSearchParams } from "../../parts/router.tsx";
import { View } from "../../parts/view.tsx";
import { ApiTokens } from "./api-tokens.tsx";
import { Sessions } from "./sessions.tsx";
import { Users } from "./users.tsx";

/** Who gets in, and with what. */
export default function People() {
  const [params] = useSearchParams();
  const mayOthers = useMay()("listUsers");
  const user = params.get("user");
  return (
    <View title="Access">
      <Card title="API tokens">
        <ApiTokens />
      </Card>
      <Card title="Your sessions">
        <Sessions />
      </Card>
      <Card title="Users">
        <Offered
          operation="listUsers"
          what="Users are made, changed and unlocked here; single sign-on makes them by itself."
        >
          <Users />
        </Offered>
      </Card>
      {mayOthers && user !== null && (
        <div key={user} ref={toBeSeen}>
          <Card title={`Sessions of ${user}`}>
            <Sessions user={user} />
          </Card>
        </div>
      )}
    </View>
  );
}

/** It comes below a long list of users. */
const toBeSeen = (element: HTMLElement | null) => element?.scrollIntoView({ block: "nearest" });
