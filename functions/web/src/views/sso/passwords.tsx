import { MessageBar, MessageBarBody, MessageBarTitle, Text } from "@fluentui/react-components";
import type { Schemas } from "../../api/client.ts";
import { isolated } from "../../parts/isolated.ts";
import { Operate } from "../../parts/operate.tsx";

/** The card of the Single sign-on page that turns password sign-in on or off. It is off if `ssoOnlyMode` is set. */
export function Passwords({ saved }: { saved: Schemas["SsoConfiguration"] }) {
  const { ssoOnlyMode, isEnabled, etag, bootstrapUsername } = saved;
  const params = { header: { "If-Match": etag } };
  const bootstrapUser = `the bootstrap administrator${bootstrapUsername ? ` ${isolated(bootstrapUsername)}` : ""}`;
  if (ssoOnlyMode)
    return (
      <>
        <Text>
          Password sign-in is off. Only {bootstrapUser} can still sign in with a password. Each such sign-in triggers
          the alert Break-glass administrator signed in.
        </Text>
        <div>
          {/* Two keys: after the change, the open dialog must not turn into the form of the opposite change. */}
          <Operate
            key="on"
            operation="putSsoConfiguration"
            title="Turn on password sign-in"
            action="Turn on password sign-in"
            submit={(_, put) => put({ params, body: { ssoOnlyMode: false } })}
          >
            <Text>All users with a password can sign in with it again.</Text>
          </Operate>
        </div>
      </>
    );
  return (
    <>
      <Text>Password sign-in is on{isEnabled ? ", in addition to single sign-on" : ""}.</Text>
      <div>
        <Operate
          key="off"
          operation="putSsoConfiguration"
          title="Turn off password sign-in"
          action="Turn off password sign-in"
          submit={(_, put) => put({ params, body: { ssoOnlyMode: true } })}
        >
          <Text>
            Before you can turn off password sign-in, an administrator must sign in once through single sign-on with the
            current configuration.
          </Text>
          <MessageBar intent="warning" layout="multiline">
            <MessageBarBody>
              <MessageBarTitle>Single sign-on becomes the only way to sign in.</MessageBarTitle> Only {bootstrapUser}{" "}
              can still sign in with a password. If the identity provider fails, that password is the only way to sign
              in, so keep it available. API tokens keep working. You can turn on password sign-in again.
            </MessageBarBody>
          </MessageBar>
        </Operate>
      </div>
    </>
  );
}
