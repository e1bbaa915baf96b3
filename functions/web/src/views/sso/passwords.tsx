import { MessageBar, MessageBarBody, MessageBarTitle, Text } from "@fluentui/react-components";
import type { Schemas } from "../../api/client.ts";
import { Operate } from "../../parts/operate.tsx";

/** Turns password sign-in on or off. */
export function Passwords({ now: { ssoOnlyMode, isEnabled, etag } }: { now: Schemas["SsoConfiguration"] }) {
  const params = { header: { "If-Match": etag } };
  if (ssoOnlyMode)
    return (
      <>
        <Text>
          Password sign-in is off, except for the bootstrap administrator. Each use of that password raises an alert.
        </Text>
        <div>
          <Operate
            operation="putSsoConfiguration"
            title="Turn on passwords"
            action="Turn on passwords"
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
          operation="putSsoConfiguration"
          title="Turn off passwords"
          action="Turn off passwords"
          submit={(_, put) => put({ params, body: { ssoOnlyMode: true } })}
        >
          <MessageBar intent="warning" layout="multiline">
            <MessageBarBody>
              <MessageBarTitle>Single sign-on becomes the only way to sign in</MessageBarTitle>
              Only the bootstrap administrator can still sign in with a password. If the identity provider fails, that
              password is the only way to sign in, so keep it available. Sign in through single sign-on as an
              administrator first. API tokens keep working.
            </MessageBarBody>
          </MessageBar>
        </Operate>
      </div>
    </>
  );
}
