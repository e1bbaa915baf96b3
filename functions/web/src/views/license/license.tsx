import { Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { Answer } from "../../parts/answer.tsx";
import { Card } from "../../parts/card.tsx";
import { Copyable } from "../../parts/copyable.tsx";
import { Instant } from "../../parts/instant.tsx";
import { View } from "../../parts/view.tsx";

type License = Schemas["LicenseStatus"];

const REASONS: Record<NonNullable<License["reason"]>, string> = {
  missing: "No licence is given.",
  malformed: "What the setting holds is no licence. Copy it again, as a whole.",
  unknownKey: "The licence was signed with a key that this version does not know. Install a newer version.",
  badSignature: "The licence was changed after it was signed. Copy it again, as a whole.",
  wrongTenant: "The licence is for another Entra tenant than the one in AZURE_TENANT_ID.",
  expired: "The licence has ended.",
};

const FEATURES: Record<License["features"][number], { pro: boolean; what: string }> = {
  discovery: { pro: false, what: "Discovery: all secrets, keys and certificates of your key vaults" },
  compliance: { pro: false, what: "Compliance: checks, frameworks, score, exemptions" },
  alerts: { pro: false, what: "Alerts: who is told of what, and when" },
  subscriptions: { pro: false, what: "Subscriptions: which are watched" },
  audit: { pro: false, what: "Audit log: what was done by whom, with proof that nothing was changed" },
  settings: { pro: false, what: "Settings" },
  rotation: { pro: true, what: "Rotation: applications' secrets replaced step by step, with a way back" },
  sync: { pro: true, what: "Sync: copies of vault secrets in other stores, kept the same" },
  dependencies: { pro: true, what: "Dependencies: who uses which secret, and what a rotation would do to each" },
  sso: { pro: true, what: "Single sign-on: OpenID Connect and SAML" },
  users: { pro: true, what: "Users: more people than the first administrator, with roles" },
  b2c: { pro: true, what: "B2C tenants: the credentials of customers' and partners' tenants" },
};

/** Which licence holds, until when, and what it opens. */
export default function LicenseView() {
  const license = api.useQuery("get", "/system/license/status");
  return (
    <View title="Licence">
      <Answer of={license}>
        {(status) => (
          <>
            <Card title={status.tier === "pro" ? "PRO" : "Core"}>
              <Status of={status} />
            </Card>
            <Card title={status.tier === "pro" ? "What it opens" : "What PRO would add"}>
              <ul>
                {Object.entries(FEATURES)
                  .filter(([name, { pro }]) =>
                    status.tier === "pro" ? status.features.includes(name as keyof typeof FEATURES) : pro,
                  )
                  .map(([name, { what }]) => (
                    <li key={name}>{what}</li>
                  ))}
              </ul>
            </Card>
            <Card title="Where it is put">
              <Copyable label="Setting of the function app" text="LICENSE_KEY" />
              <Text>
                It holds the licence's text, best as a reference to a key vault's secret. The app is restarted after a
                change. The licence is checked here; nothing outside is asked.
              </Text>
            </Card>
          </>
        )}
      </Answer>
    </View>
  );
}

function Status({ of: { valid, reason, expiresAt, daysLeft, inGrace, graceEndsAt } }: { of: License }) {
  return (
    <>
      {reason !== null && <Text>{REASONS[reason]}</Text>}
      {expiresAt !== null && (
        <Text>
          {valid && !inGrace ? "It holds until" : "It ended"} <Instant at={expiresAt} />
          {daysLeft !== null && daysLeft >= 0 && `, ${daysLeft.toLocaleString()} days from now`}.
        </Text>
      )}
      {inGrace && graceEndsAt !== null && (
        <Text>
          What it opens stays open until <Instant at={graceEndsAt} />. Nothing that is stored is lost after that.
        </Text>
      )}
    </>
  );
}
