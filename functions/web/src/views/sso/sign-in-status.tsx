import { MessageBar, MessageBarBody, MessageBarTitle, Text } from "@fluentui/react-components";
import type { Schemas } from "../../api/client.ts";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { counted } from "../../parts/plural.ts";

/** The first card of the Single sign-on page: the last successful sign-in, and a test of the saved configuration. */
export function SignInStatus({ saved }: { saved: Schemas["SsoConfiguration"] }) {
  const { isEnabled, totalSsoLogins, lastSuccessfulLoginAt, updatedAt } = saved;
  const isUsed = lastSuccessfulLoginAt !== null;
  const changedSince = isUsed && updatedAt !== null && Date.parse(updatedAt) > Date.parse(lastSuccessfulLoginAt);
  return (
    <>
      <MessageBar
        intent={isEnabled && isUsed && !changedSince ? "success" : isEnabled ? "warning" : "info"}
        layout="multiline"
      >
        <MessageBarBody>
          <MessageBarTitle>
            {isUsed ? (
              <>
                Last successful sign-in: <Instant at={lastSuccessfulLoginAt} relative />
              </>
            ) : (
              "No successful sign-in yet"
            )}
          </MessageBarTitle>
          <Text block>
            {isEnabled ? "Single sign-on is on" : "Single sign-on is off"}, with {counted(totalSsoLogins, "sign-in")} so
            far. {changedSince && "The configuration was modified after the last sign-in. "}
            {isEnabled && (!isUsed || changedSince) && "Test the saved configuration, then sign in once to check it."}
          </Text>
        </MessageBarBody>
      </MessageBar>
      {(saved.oidcIssuer ?? saved.samlIdpEntityId) !== null && (
        <div>
          <Operate
            operation="testSsoConfiguration"
            title="Test saved configuration"
            action="Test connection"
            submit={async (_, test) => <TestOutcome of={await test({ body: {} })} />}
          >
            <Text>
              Reads the addresses and keys of the identity provider, and signs in to it as this service if it uses
              OpenID Connect. This makes no changes and signs in no user.
            </Text>
          </Operate>
        </div>
      )}
    </>
  );
}

/** Checks of the connection test. */
const CHECKS = {
  address: "URL",
  document: "Discovery document",
  keys: "Signing keys",
  client: "Client ID and secret",
} as const;

/** The result of a connection test. */
export function TestOutcome({ of: { success, checks } }: { of: Schemas["SsoTestResult"] }) {
  return (
    <>
      <Text block weight="semibold">
        {success ? "Connection test passed." : "Connection test failed."}
      </Text>
      <ul>
        {checks.map(({ name, passed, detail }) => (
          <li key={`${name} ${detail}`}>
            {CHECKS[name]}: {passed ? "passed" : "failed"}. {detail}
          </li>
        ))}
      </ul>
    </>
  );
}
