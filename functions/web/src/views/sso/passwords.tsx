import { MessageBar, MessageBarBody, MessageBarTitle, Text } from "@fluentui/react-components";
import type { Schemas } from "../../api/client.ts";
import { Operate } from "../../parts/operate.tsx";

/** Whether passwords are taken beside single sign-on. */
export function Passwords({ now: { ssoOnlyMode, isEnabled, etag } }: { now: Schemas["SsoConfiguration"] }) {
  const params = { header: { "If-Match": etag } };
  if (ssoOnlyMode)
    return (
      <>
        <Text>Passwords are off for all but the bootstrap administrator, whose use of one is told of.</Text>
        <div>
          <Operate
            operation="putSsoConfiguration"
            title="Switch passwords on"
            action="Switch on"
            submit={(_, put) => put({ params, body: { ssoOnlyMode: false } })}
          >
            <Text>Everybody who has a password can sign in with it again.</Text>
          </Operate>
        </div>
      </>
    );
  return (
    <>
      <Text>Passwords are taken{isEnabled ? " beside single sign-on" : ""}.</Text>
      <div>
        <Operate
          operation="putSsoConfiguration"
          title="Switch passwords off"
          action="Switch off"
          submit={(_, put) => put({ params, body: { ssoOnlyMode: true } })}
        >
          <MessageBar intent="warning" layout="multiline">
            <MessageBarBody>
              <MessageBarTitle>Only single sign-on gets in then</MessageBarTitle>
              Nobody but the bootstrap administrator can sign in with a password while this is on. When the identity
              provider fails, that password is the only way in: have it at hand, and sign in by single sign-on as an
              administrator first. API tokens go on working.
            </MessageBarBody>
          </MessageBar>
        </Operate>
      </div>
    </>
  );
}
