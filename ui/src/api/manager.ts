/** Names that the pages use for the types of the manager. */

export type {
  Device,
  DevicePort,
  Devices,
  Domain,
  Intent,
  Intents,
  ManagerHistory,
  ManagerHistoryEntry,
  Plan,
} from './generated';
