package parklock.peer;

import org.redisson.Redisson;
import org.redisson.RedissonFairLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.command.CommandAsyncExecutor;
import org.redisson.config.Config;

/**
 * How long Redisson waits for each in the queue of a fair lock: a setting from version 3.46 on. Before, only a
 * constructor takes another time than five minutes.
 */
final class FairLocks {
    private final long wait;
    private final boolean isSetting;

    FairLocks(Config config, long wait) throws Exception {
        this.wait = wait;
        isSetting = set(config, wait);
    }

    private static boolean set(Config config, long wait) throws Exception {
        try {
            Since.call(Config.class, config, "setFairLockWaitTimeout", Since.types(long.class), wait);
            return true;
        } catch (NoSuchMethodException before) {
            return false;
        }
    }

    RLock lock(RedissonClient redisson, String name) throws ReflectiveOperationException {
        if (isSetting) {
            return redisson.getFairLock(name);
        }
        CommandAsyncExecutor executor = ((Redisson) redisson).getCommandExecutor();
        return RedissonFairLock.class
                .getConstructor(CommandAsyncExecutor.class, String.class, long.class)
                .newInstance(executor, name, wait);
    }
}
