import {
  Button,
  Dialog,
  DialogActions,
  DialogBody,
  DialogContent,
  DialogSurface,
  DialogTitle,
  Text,
} from "@fluentui/react-components";
import { useEffect, useState } from "react";
import { type Unseen as Ended, onDoneUnseen } from "../api/events.ts";
import { ProblemNotice } from "../parts/problem-notice.tsx";

/** Tells how a change ended whose form was left before its answer came: it had been sent. */
export function Unseen() {
  const [all, set] = useState<Ended[]>([]);
  useEffect(() => onDoneUnseen((one) => set((before) => [...before, one])), []);
  const [first, ...others] = all;
  return (
    <Dialog modalType="alert" open={first !== undefined}>
      <DialogSurface>
        {first && (
          <DialogBody>
            <DialogTitle>{first.title}</DialogTitle>
            <DialogContent>
              {first.problem ? (
                <ProblemNotice problem={first.problem} />
              ) : (
                <Text block>This had been sent when its form was closed, and is done.</Text>
              )}
              {first.outcome}
            </DialogContent>
            <DialogActions>
              <Button appearance="primary" onClick={() => set(others)}>
                Close
              </Button>
            </DialogActions>
          </DialogBody>
        )}
      </DialogSurface>
    </Dialog>
  );
}
