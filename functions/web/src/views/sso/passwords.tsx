import { MessageBar, MessageBarBody, MessageBarTitle, Text } from "@fluentui/react-components";
import type { Schemas } from "../../api/client.ts";
import { Operate } from "../../parts/operate.tsx";

/** The card of the Single sign-on page that turns password sign-in on or off. It is off if `ssoOnlyMode` is set. */
export function Passwords({ saved: { ssoOnlyMode, isEnabled, etag } }: { saved: Schemas["SsoConfiguration"] }) {
  const params = { header: { "If-Match": etag } };
  if (ssoOnlyMode)
    return (
      <>
        <Text>
          Password sign-in is off. Only the bootstrap administrator, the first account of this service, can still sign
          in with a password. Each such sign-in triggers the alert Break-glass administrator signed in.
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
              Only the bootstrap administrator, the first account of this service, can still sign in with a password. If
              the identity provider fails, that password is the only way to sign in, so keep it available. To prevent a
              lockout, sign in through single sign-on as an administrator before you turn off passwords. API tokens keep
              working. You can turn on passwords again.
            </MessageBarBody>
          </MessageBar>
        </Operate>
      </div>
    </>
  );
}
