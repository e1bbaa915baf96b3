import { Text } from "@fluentui/react-components";
import type { Schemas } from "../../api/client.ts";

const CHECKS: Record<Schemas["B2cTenantTest"]["checks"][number]["name"], string> = {
  signIn: "Sign-in",
  consent: "Admin consent",
  tenant: "Tenant ID",
  domain: "Domain",
  applications: "Applications",
  policyKeys: "Policy keys",
  identityProviders: "Identity providers",
};
const OUTCOMES = {
  ok: "passed",
  failed: "failed",
  notApplicable: "not available in this type of tenant",
  notTried: "not tested",
} as const;

/** The result of a connection test. Some checks do not apply to every type of tenant. */
export const TestOutcome = ({ result: { ok, checks } }: { result: Schemas["B2cTenantTest"] }) => (
  <>
    <Text block weight="semibold">
      {ok ? "Connection test passed." : "Connection test failed."}
    </Text>
    <ul>
      {checks.map(({ name, outcome, permission, message, remedy }) => (
        <li key={name}>
          {CHECKS[name]}: {OUTCOMES[outcome]}.{" "}
          {outcome === "failed" && `${message ?? ""} ${remedy ?? permission ?? ""}`}
        </li>
      ))}
    </ul>
  </>
);
